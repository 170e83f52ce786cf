import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;

import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Probes of a broker with Apache Kafka's Java client: `Probes --broker HOST:PORT [NAME...]` runs all of them, or those, and
 * prints {"test", "status", "detail", "took_ms"} for each, a JSON object a line.
 */
public class Probes {
    /** One thing that the client does with a broker, and what must come of it. */
    interface Probe {
        void run(Probes p) throws Exception;
    }

    /** How long a probe waits for what must happen. */
    static final Duration PATIENCE = Duration.ofSeconds(60);

    final String bootstrap;
    final Admin admin;

    private Probes(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(settings("default.api.timeout.ms", "30000"));
    }

    public static void main(String[] args) throws Exception {
        Map<String, Probe> all = new LinkedHashMap<>();
        ProducerProbes.register(all);
        ConsumerProbes.register(all);
        GroupProbes.register(all);
        AdminProbes.register(all);
        List<String> names = args.length > 2 ? List.of(args).subList(2, args.length) : new ArrayList<>(all.keySet());
        ObjectMapper json = new ObjectMapper();
        Probes probes = new Probes(args[1]);
        for (String name : names) {
            Map<String, Object> result = new HashMap<>(Map.of("test", name, "status", "passed", "detail", ""));
            long started = System.nanoTime();
            try {
                if (!all.containsKey(name)) {
                    throw new AssertionError("there is no such probe");
                }
                all.get(name).run(probes);
            } catch (Throwable e) {
                result.put("status", "failed");
                result.put("detail", explain(e));
            }
            result.put("took_ms", (System.nanoTime() - started) / 1_000_000);
            System.out.println(json.writeValueAsString(result));
        }
        probes.admin.close();
        System.exit(0);
    }

    private static String explain(Throwable e) {
        StringBuilder text = new StringBuilder(e.toString());
        for (StackTraceElement at : e.getStackTrace()) {
            if (at.getClassName().endsWith("Probes")) {
                text.append("\n").append(at);
            }
        }
        return text.toString();
    }

    // What probes are made of.

    /** Settings of a client from pairs, with the address of the broker. */
    Map<String, Object> settings(Object... pairs) {
        Map<String, Object> all = new HashMap<>();
        all.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) {
            all.put((String) pairs[i], pairs[i + 1]);
        }
        return all;
    }

    KafkaProducer<String, String> producer(Object... pairs) {
        return new KafkaProducer<>(settings(pairs), new StringSerializer(), new StringSerializer());
    }

    KafkaProducer<byte[], byte[]> bytesProducer(Object... pairs) {
        return new KafkaProducer<>(settings(pairs), new ByteArraySerializer(), new ByteArraySerializer());
    }

    KafkaConsumer<String, String> consumer(Object... pairs) {
        Map<String, Object> all = settings("auto.offset.reset", "earliest", "enable.auto.commit", "false");
        all.putAll(settings(pairs));
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    KafkaConsumer<byte[], byte[]> bytesConsumer(Object... pairs) {
        Map<String, Object> all = settings("auto.offset.reset", "earliest", "enable.auto.commit", "false");
        all.putAll(settings(pairs));
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** A name that nobody has used before. */
    static String fresh(String what) {
        return what + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    /** Creates a topic with these settings and returns its name. */
    String topic(int partitions, String... settings) throws Exception {
        Map<String, String> configs = new HashMap<>();
        for (int i = 0; i < settings.length; i += 2) {
            configs.put(settings[i], settings[i + 1]);
        }
        String name = fresh("probe");
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(configs))).all().get();
        return name;
    }

    /**
     * Produces records `from` up to, not including, `to`, with their number as key and value. One request is in flight:
     * Apache Kafka refuses the first for a moment after it has created a topic, and takes the second; the retried first
     * is out of order then, for ever.
     */
    void fill(String topic, int from, int to) throws Exception {
        try (KafkaProducer<String, String> producer = producer("linger.ms", "5", "max.in.flight.requests.per.connection", "1")) {
            for (int i = from; i < to; i++) {
                producer.send(new ProducerRecord<>(topic, Integer.toString(i), Integer.toString(i)));
            }
        }
    }

    /** Reads a partition from its start until it has this many records. */
    List<ConsumerRecord<String, String>> read(String topic, int partition, int count) {
        try (KafkaConsumer<String, String> consumer = consumer()) {
            TopicPartition at = new TopicPartition(topic, partition);
            consumer.assign(List.of(at));
            consumer.seekToBeginning(List.of(at));
            return poll(consumer, count);
        }
    }

    /** Polls until it has this many records. */
    static <K, V> List<ConsumerRecord<K, V>> poll(KafkaConsumer<K, V> consumer, int count) {
        List<ConsumerRecord<K, V>> records = new ArrayList<>();
        await("a poll of " + count + " records", () -> {
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
            return records.size() >= count;
        });
        equal("records polled", count, records.size());
        return records;
    }

    /** Something that comes true. */
    interface Condition {
        boolean holds() throws Exception;
    }

    static void await(String what, Condition condition) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        try {
            while (!condition.holds()) {
                if (System.nanoTime() > deadline) {
                    throw new AssertionError(what + " did not happen within " + PATIENCE);
                }
            }
        } catch (RuntimeException e) {
            throw e;
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    static void check(String what, boolean holds) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static void equal(String what, Object want, Object got) {
        if (want == null ? got != null : !want.equals(got)) {
            throw new AssertionError(what + ": " + got + ", want " + want);
        }
    }

    /** Something that must be refused. */
    interface Attempt {
        void run() throws Exception;
    }

    /** Checks that an attempt fails with this exception, perhaps inside an ExecutionException. */
    static <E extends Throwable> E refused(Class<E> want, Attempt attempt) {
        try {
            attempt.run();
        } catch (Throwable e) {
            Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
            if (want.isInstance(cause)) {
                return want.cast(cause);
            }
            throw new AssertionError("refused with " + cause + ", want " + want.getSimpleName(), cause);
        }
        throw new AssertionError("not refused, want " + want.getSimpleName());
    }

    static Set<TopicPartition> partitions(String topic, int count) {
        Set<TopicPartition> all = new HashSet<>();
        for (int i = 0; i < count; i++) {
            all.add(new TopicPartition(topic, i));
        }
        return all;
    }
}
