import java.io.File;

import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;

/** Reads leader-epoch-checkpoint files with Apache Kafka's own class and prints each entry as `epoch startOffset`. */
public class EpochCheckpoint {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            LeaderEpochCheckpointFile file =
                new LeaderEpochCheckpointFile(new File(name), new LogDirFailureChannel(1));
            file.read().forEach(entry -> System.out.println(entry.epoch() + " " + entry.startOffset()));
        }
    }
}
