import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.NoOffsetForPartitionException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.OffsetMetadataTooLarge;
import org.apache.kafka.common.errors.WakeupException;

/** What the Java consumer does with partitions that it chooses itself. */
final class ConsumerProbes {
    private ConsumerProbes() { }

    static void register(Map<String, Probes.Probe> all) {
        all.put("consumer-seek", ConsumerProbes::seek);
        all.put("consumer-pause", ConsumerProbes::pause);
        all.put("consumer-offsets-for-times", ConsumerProbes::offsetsForTimes);
        all.put("consumer-beginning-and-end", ConsumerProbes::beginningAndEnd);
        all.put("consumer-commit-with-metadata", ConsumerProbes::commitMetadata);
        all.put("consumer-commit-metadata-too-large", ConsumerProbes::commitTooLarge);
        all.put("consumer-commit-async", ConsumerProbes::commitAsync);
        all.put("consumer-wakeup", ConsumerProbes::wakeup);
        all.put("consumer-reset-latest", ConsumerProbes::resetLatest);
        all.put("consumer-reset-none", ConsumerProbes::resetNone);
        all.put("consumer-reset-by-duration", ConsumerProbes::resetByDuration);
        all.put("consumer-out-of-range", ConsumerProbes::outOfRange);
        all.put("consumer-max-poll-records", ConsumerProbes::maxPollRecords);
        all.put("consumer-read-committed", ConsumerProbes::readCommitted);
        all.put("consumer-many-partitions", ConsumerProbes::manyPartitions);
        all.put("consumer-list-topics", ConsumerProbes::listTopics);
        all.put("consumer-follows-new-records", ConsumerProbes::follows);
    }

    private static TopicPartition assign(KafkaConsumer<?, ?> consumer, String topic) {
        TopicPartition at = new TopicPartition(topic, 0);
        consumer.assign(List.of(at));
        return at;
    }

    private static void seek(Probes p) throws Exception {
        String topic = p.topic(1);
        p.fill(topic, 0, 1000);
        try (KafkaConsumer<String, String> consumer = p.consumer("max.poll.records", "10")) {
            TopicPartition at = assign(consumer, topic);
            for (long offset : List.of(500L, 3L, 999L, 0L)) {
                consumer.seek(at, offset);
                Probes.equal("position", offset, consumer.position(at));
                AtomicReference<ConsumerRecord<String, String>> first = new AtomicReference<>();
                Probes.await("a record", () -> {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                        first.compareAndSet(null, record);
                    }
                    return first.get() != null;
                });
                Probes.equal("first record", offset, first.get().offset());
                Probes.equal("value", Long.toString(offset), first.get().value());
            }
            consumer.seek(at, new OffsetAndMetadata(7, Optional.of(0), "with an epoch"));
            Probes.equal("position", 7L, consumer.position(at));
            consumer.seekToEnd(List.of(at));
            Probes.equal("end", 1000L, consumer.position(at));
            consumer.seekToBeginning(List.of(at));
            Probes.equal("beginning", 0L, consumer.position(at));
        }
    }

    private static void pause(Probes p) throws Exception {
        String topic = p.topic(2);
        for (int partition = 0; partition < 2; partition++) {
            try (KafkaProducer<String, String> producer = p.producer()) {
                for (int i = 0; i < 100; i++) {
                    producer.send(new ProducerRecord<>(topic, partition, null, "x"));
                }
            }
        }
        try (KafkaConsumer<String, String> consumer = p.consumer()) {
            TopicPartition first = new TopicPartition(topic, 0);
            consumer.assign(Probes.partitions(topic, 2));
            consumer.pause(List.of(first));
            Probes.equal("paused", Set.of(first), consumer.paused());
            Probes.poll(consumer, 100).forEach(record -> Probes.equal("partition", 1, record.partition()));
            Probes.equal("records while paused", 0, consumer.poll(Duration.ofMillis(300)).count());
            consumer.resume(List.of(first));
            Probes.poll(consumer, 100).forEach(record -> Probes.equal("partition", 0, record.partition()));
        }
    }

    private static void offsetsForTimes(Probes p) throws Exception {
        String topic = p.topic(1, "retention.ms", "-1");
        try (KafkaProducer<String, String> producer = p.producer("compression.type", "gzip", "linger.ms", "50")) {
            for (int i = 0; i < 100; i++) {
                producer.send(new ProducerRecord<>(topic, 0, 1_000_000L + i * 10, null, "x"));
            }
        }
        try (KafkaConsumer<String, String> consumer = p.consumer()) {
            TopicPartition at = assign(consumer, topic);
            Map<Long, Long> want = Map.of(0L, 0L, 1_000_000L, 0L, 1_000_001L, 1L, 1_000_500L, 50L, 1_000_990L, 99L);
            for (Map.Entry<Long, Long> e : want.entrySet()) {
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(at, e.getKey())).get(at);
                Probes.equal("offset for " + e.getKey(), e.getValue(), found.offset());
                Probes.equal("time at " + found.offset(), 1_000_000L + found.offset() * 10, found.timestamp());
                Probes.equal("epoch", Optional.of(0), found.leaderEpoch());
            }
            Probes.equal("offset beyond the last", null, consumer.offsetsForTimes(Map.of(at, 1_000_991L)).get(at));
        }
    }

    private static void beginningAndEnd(Probes p) throws Exception {
        String topic = p.topic(3);
        p.fill(topic, 0, 300);
        p.admin.deleteRecords(Map.of(new TopicPartition(topic, 0), RecordsToDelete.beforeOffset(5))).all().get();
        try (KafkaConsumer<String, String> consumer = p.consumer()) {
            Set<TopicPartition> all = Probes.partitions(topic, 3);
            Probes.equal("records", 300L, consumer.endOffsets(all).values().stream().mapToLong(Long::longValue).sum());
            Probes.equal("beginning", 5L, consumer.beginningOffsets(all).get(new TopicPartition(topic, 0)));
            TopicPartition at = assign(consumer, topic);
            Probes.equal("position", 5L, consumer.position(at));
            consumer.seekToEnd(List.of(at));
            consumer.position(at);
            Probes.await("the lag", () -> {
                consumer.poll(Duration.ofMillis(50));
                return consumer.currentLag(at).isPresent();
            });
            Probes.equal("lag at the end", 0L, consumer.currentLag(at).getAsLong());
        }
    }

    private static void commitMetadata(Probes p) throws Exception {
        String topic = p.topic(2);
        p.fill(topic, 0, 100);
        String group = Probes.fresh("group");
        TopicPartition first = new TopicPartition(topic, 0);
        OffsetAndMetadata committed = new OffsetAndMetadata(12, Optional.of(0), "größe of it");
        try (KafkaConsumer<String, String> consumer = p.consumer("group.id", group)) {
            consumer.assign(Probes.partitions(topic, 2));
            consumer.commitSync(Map.of(first, committed));
            Map<TopicPartition, OffsetAndMetadata> want = new HashMap<>();
            want.put(first, committed);
            want.put(new TopicPartition(topic, 1), null);
            Probes.equal("committed", want, consumer.committed(Probes.partitions(topic, 2)));
        }
        try (KafkaConsumer<String, String> consumer = p.consumer("group.id", group)) {
            TopicPartition at = assign(consumer, topic);
            Probes.equal("position after a restart", 12L, consumer.position(at));
        }
    }

    private static void commitTooLarge(Probes p) throws Exception {
        String topic = p.topic(1);
        try (KafkaConsumer<String, String> consumer = p.consumer("group.id", Probes.fresh("group"))) {
            TopicPartition at = assign(consumer, topic);
            Probes.refused(OffsetMetadataTooLarge.class, () -> consumer.commitSync(Map.of(at, new OffsetAndMetadata(1, "x".repeat(5000)))));
            consumer.commitSync(Map.of(at, new OffsetAndMetadata(1, "x".repeat(4096))));
        }
    }

    private static void commitAsync(Probes p) throws Exception {
        String topic = p.topic(1);
        p.fill(topic, 0, 50);
        try (KafkaConsumer<String, String> consumer = p.consumer("group.id", Probes.fresh("group"))) {
            TopicPartition at = assign(consumer, topic);
            Probes.poll(consumer, 50);
            AtomicReference<Map<TopicPartition, OffsetAndMetadata>> done = new AtomicReference<>();
            consumer.commitAsync((offsets, e) -> {
                Probes.equal("failure", null, e);
                done.set(offsets);
            });
            Probes.await("the callback", () -> {
                consumer.poll(Duration.ofMillis(50));
                return done.get() != null;
            });
            Probes.equal("committed", 50L, consumer.committed(Set.of(at)).get(at).offset());
        }
    }

    private static void wakeup(Probes p) throws Exception {
        String topic = p.topic(1);
        try (KafkaConsumer<String, String> consumer = p.consumer()) {
            assign(consumer, topic);
            consumer.poll(Duration.ofMillis(500));
            Thread waker = new Thread(consumer::wakeup);
            long started = System.nanoTime();
            waker.start();
            Probes.refused(WakeupException.class, () -> consumer.poll(Duration.ofSeconds(30)));
            Probes.check("it was woken", System.nanoTime() - started < 20_000_000_000L);
            waker.join();
            p.fill(topic, 0, 3);
            Probes.poll(consumer, 3);
        }
    }

    private static void resetLatest(Probes p) throws Exception {
        String topic = p.topic(1);
        p.fill(topic, 0, 10);
        try (KafkaConsumer<String, String> consumer = p.consumer("auto.offset.reset", "latest")) {
            TopicPartition at = assign(consumer, topic);
            Probes.equal("position", 10L, consumer.position(at));
            p.fill(topic, 10, 11);
            Probes.equal("record", 10L, Probes.poll(consumer, 1).get(0).offset());
        }
    }

    private static void resetNone(Probes p) throws Exception {
        String topic = p.topic(1);
        try (KafkaConsumer<String, String> consumer = p.consumer("auto.offset.reset", "none", "group.id", Probes.fresh("group"))) {
            assign(consumer, topic);
            Probes.refused(NoOffsetForPartitionException.class, () -> Probes.await("the refusal", () -> {
                consumer.poll(Duration.ofMillis(100));
                return false;
            }));
        }
    }

    private static void resetByDuration(Probes p) throws Exception {
        String topic = p.topic(1, "retention.ms", "-1");
        try (KafkaProducer<String, String> producer = p.producer()) {
            producer.send(new ProducerRecord<>(topic, 0, System.currentTimeMillis() - 7_200_000, null, "old"));
            producer.send(new ProducerRecord<>(topic, 0, System.currentTimeMillis(), null, "new"));
        }
        try (KafkaConsumer<String, String> consumer = p.consumer("auto.offset.reset", "by_duration:PT1H")) {
            assign(consumer, topic);
            Probes.equal("record", "new", Probes.poll(consumer, 1).get(0).value());
        }
    }

    private static void outOfRange(Probes p) throws Exception {
        String topic = p.topic(1);
        p.fill(topic, 0, 100);
        p.admin.deleteRecords(Map.of(new TopicPartition(topic, 0), RecordsToDelete.beforeOffset(40))).all().get();
        try (KafkaConsumer<String, String> consumer = p.consumer("auto.offset.reset", "none")) {
            for (long offset : List.of(10L, 1000L)) {
                TopicPartition at = assign(consumer, topic);
                consumer.seek(at, offset);
                OffsetOutOfRangeException e = Probes.refused(OffsetOutOfRangeException.class, () -> Probes.await("the refusal", () -> {
                    consumer.poll(Duration.ofMillis(100));
                    return false;
                }));
                Probes.equal("partitions out of range", Map.of(at, offset), e.offsetOutOfRangePartitions());
            }
        }
        try (KafkaConsumer<String, String> consumer = p.consumer()) {
            consumer.seek(assign(consumer, topic), 10);
            Probes.equal("first after the reset", 40L, Probes.poll(consumer, 60).get(0).offset());
        }
    }

    private static void maxPollRecords(Probes p) throws Exception {
        String topic = p.topic(1);
        p.fill(topic, 0, 100);
        try (KafkaConsumer<String, String> consumer = p.consumer("max.poll.records", "7")) {
            assign(consumer, topic);
            int[] total = {0};
            Probes.await("all records", () -> {
                int count = consumer.poll(Duration.ofMillis(100)).count();
                Probes.check("at most 7 at once, not " + count, count <= 7);
                total[0] += count;
                return total[0] == 100;
            });
        }
    }

    private static void readCommitted(Probes p) throws Exception {
        String topic = p.topic(1);
        p.fill(topic, 0, 100);
        try (KafkaConsumer<String, String> consumer = p.consumer("isolation.level", "read_committed")) {
            TopicPartition at = assign(consumer, topic);
            Probes.poll(consumer, 100);
            Probes.equal("end", 100L, consumer.endOffsets(List.of(at)).get(at));
        }
    }

    private static void manyPartitions(Probes p) throws Exception {
        String topic = p.topic(50);
        p.fill(topic, 0, 5000);
        try (KafkaConsumer<String, String> consumer = p.consumer("fetch.max.bytes", "2000", "max.partition.fetch.bytes", "200")) {
            consumer.assign(Probes.partitions(topic, 50));
            Map<Integer, Long> next = new HashMap<>();
            for (ConsumerRecord<String, String> record : Probes.poll(consumer, 5000)) {
                Probes.equal("next of " + record.partition(), next.getOrDefault(record.partition(), 0L), record.offset());
                next.put(record.partition(), record.offset() + 1);
            }
        }
    }

    private static void listTopics(Probes p) throws Exception {
        String topic = p.topic(3);
        try (KafkaConsumer<String, String> consumer = p.consumer()) {
            Probes.equal("partitions", 3, consumer.listTopics().get(topic).size());
            Probes.equal("partitions", 3, consumer.partitionsFor(topic).size());
            consumer.partitionsFor(topic).forEach(info -> Probes.check("a leader", info.leader() != null && !info.leader().isEmpty()));
        }
    }

    private static void follows(Probes p) throws Exception {
        String topic = p.topic(1);
        try (KafkaConsumer<String, String> consumer = p.consumer("fetch.max.wait.ms", "10000", "fetch.min.bytes", "1");
            KafkaProducer<String, String> producer = p.producer()) {
            assign(consumer, topic);
            for (int i = 0; i < 100; i++) {
                producer.send(new ProducerRecord<>(topic, Integer.toString(i)));
                Probes.equal("value", Integer.toString(i), Probes.poll(consumer, 1).get(0).value());
            }
        }
    }
}
