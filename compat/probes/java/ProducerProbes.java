import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Future;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;

/** What the Java producer does. */
final class ProducerProbes {
    private ProducerProbes() { }

    static void register(Map<String, Probes.Probe> all) {
        all.put("producer-idempotent", p -> acks(p, "all", true));
        all.put("producer-acks-all", p -> acks(p, "all", false));
        all.put("producer-acks-1", p -> acks(p, "1", false));
        all.put("producer-acks-0", ProducerProbes::acksNone);
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            all.put("producer-codec-" + codec, p -> codec(p, codec));
        }
        all.put("producer-callbacks-in-order", ProducerProbes::callbacks);
        all.put("producer-headers", ProducerProbes::headers);
        all.put("producer-nulls", ProducerProbes::nulls);
        all.put("producer-big-records", ProducerProbes::bigRecords);
        all.put("producer-record-too-large", ProducerProbes::tooLarge);
        all.put("producer-keys-to-partitions", ProducerProbes::keys);
        all.put("producer-create-time", ProducerProbes::createTime);
        all.put("producer-append-time", ProducerProbes::appendTime);
        all.put("producer-invalid-timestamp", ProducerProbes::invalidTimestamp);
        all.put("producer-compacted-topic-wants-keys", ProducerProbes::compacted);
        all.put("producer-creates-topic", ProducerProbes::createsTopic);
        all.put("producer-invalid-topic", p -> Probes.refused(InvalidTopicException.class, () -> {
            try (KafkaProducer<String, String> producer = p.producer()) {
                producer.send(new ProducerRecord<>("not a name", "x")).get();
            }
        }));
        all.put("producer-partitions-for", ProducerProbes::partitionsFor);
    }

    private static void acks(Probes p, String acks, boolean idempotent) throws Exception {
        String topic = p.topic(1);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = p.producer("acks", acks, "enable.idempotence", Boolean.toString(idempotent),
            "linger.ms", "2", "batch.size", "1000")) {
            for (int i = 0; i < 2000; i++) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, null, Integer.toString(i))));
            }
            for (int i = 0; i < sent.size(); i++) {
                RecordMetadata at = sent.get(i).get();
                Probes.equal("partition", 0, at.partition());
                if (idempotent) {
                    Probes.equal("offset of record " + i, (long) i, at.offset());
                }
                Probes.check("a time", at.hasTimestamp());
            }
        }
        List<ConsumerRecord<String, String>> read = p.read(topic, 0, 2000);
        for (int i = 0; i < read.size(); i++) {
            Probes.equal("value", Integer.toString(i), read.get(i).value());
        }
    }

    private static void acksNone(Probes p) throws Exception {
        String topic = p.topic(1);
        try (KafkaProducer<String, String> producer = p.producer("acks", "0", "enable.idempotence", "false")) {
            RecordMetadata at = producer.send(new ProducerRecord<>(topic, "x")).get();
            Probes.check("no offset without acknowledgement", !at.hasOffset());
        }
        Probes.equal("value", "x", p.read(topic, 0, 1).get(0).value());
    }

    private static void codec(Probes p, String codec) throws Exception {
        String topic = p.topic(1);
        StringBuilder text = new StringBuilder();
        while (text.length() < 500) {
            text.append("the quick brown fox ").append(text.length());
        }
        try (KafkaProducer<String, String> producer = p.producer("compression.type", codec, "linger.ms", "20")) {
            for (int i = 0; i < 1000; i++) {
                producer.send(new ProducerRecord<>(topic, "key" + i, text + "/" + i));
            }
        }
        List<ConsumerRecord<String, String>> read = p.read(topic, 0, 1000);
        for (int i = 0; i < 1000; i++) {
            Probes.equal("offset", (long) i, read.get(i).offset());
            Probes.equal("key", "key" + i, read.get(i).key());
            Probes.equal("value", text + "/" + i, read.get(i).value());
        }
    }

    private static void callbacks(Probes p) throws Exception {
        String topic = p.topic(3);
        Map<Integer, Long> last = Collections.synchronizedMap(new HashMap<>());
        List<String> faults = Collections.synchronizedList(new ArrayList<>());
        try (KafkaProducer<String, String> producer = p.producer("max.in.flight.requests.per.connection", "5", "batch.size", "500")) {
            for (int i = 0; i < 3000; i++) {
                producer.send(new ProducerRecord<>(topic, i % 3, null, Integer.toString(i)), (at, e) -> {
                    if (e != null) {
                        faults.add(e.toString());
                    } else if (at.offset() != last.getOrDefault(at.partition(), -1L) + 1) {
                        faults.add(at + " after " + last.get(at.partition()));
                    } else {
                        last.put(at.partition(), at.offset());
                    }
                });
            }
            producer.flush();
            Probes.equal("called back in the end", Map.of(0, 999L, 1, 999L, 2, 999L), last);
        }
        Probes.equal("faults", List.of(), faults);
    }

    private static void headers(Probes p) throws Exception {
        String topic = p.topic(1);
        ProducerRecord<String, String> record = new ProducerRecord<>(topic, "k", "v");
        record.headers().add("a", "1".getBytes(StandardCharsets.UTF_8)).add("none", null).add("a", new byte[0])
            .add("größe", new byte[] {0, -1});
        try (KafkaProducer<String, String> producer = p.producer("compression.type", "lz4")) {
            producer.send(record).get();
        }
        Header[] got = p.read(topic, 0, 1).get(0).headers().toArray();
        Header[] want = record.headers().toArray();
        Probes.equal("headers", want.length, got.length);
        for (int i = 0; i < want.length; i++) {
            Probes.equal("key of a header", want[i].key(), got[i].key());
            Probes.check("value of header " + want[i].key(), Arrays.equals(want[i].value(), got[i].value()));
        }
    }

    private static void nulls(Probes p) throws Exception {
        String topic = p.topic(1);
        try (KafkaProducer<String, String> producer = p.producer()) {
            producer.send(new ProducerRecord<>(topic, null, "no key"));
            producer.send(new ProducerRecord<>(topic, "tombstone", null));
            producer.send(new ProducerRecord<>(topic, "", ""));
        }
        List<ConsumerRecord<String, String>> read = p.read(topic, 0, 3);
        Probes.equal("key", null, read.get(0).key());
        Probes.equal("value", null, read.get(1).value());
        Probes.equal("key and value", "|", read.get(2).key() + "|" + read.get(2).value());
    }

    private static void bigRecords(Probes p) throws Exception {
        String topic = p.topic(1, "max.message.bytes", "20000000");
        byte[] big = new byte[9_000_000];
        new Random(1).nextBytes(big);
        try (KafkaProducer<byte[], byte[]> producer = p.bytesProducer("max.request.size", "20000000", "buffer.memory", "40000000")) {
            for (int i = 0; i < 3; i++) {
                producer.send(new ProducerRecord<>(topic, big)).get();
            }
        }
        // The limits of a fetch give way to the first record.
        try (KafkaConsumer<byte[], byte[]> consumer = p.bytesConsumer("max.partition.fetch.bytes", "1000", "fetch.max.bytes", "1000")) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            for (ConsumerRecord<byte[], byte[]> record : Probes.poll(consumer, 3)) {
                Probes.check("the bytes of record " + record.offset(), Arrays.equals(big, record.value()));
            }
        }
    }

    private static void tooLarge(Probes p) throws Exception {
        String topic = p.topic(1);
        try (KafkaProducer<byte[], byte[]> producer = p.bytesProducer("max.request.size", "20000000", "retries", "3")) {
            Probes.refused(RecordTooLargeException.class, () -> producer.send(new ProducerRecord<>(topic, new byte[2_000_000])).get());
            Probes.equal("offset of the next", 0L, producer.send(new ProducerRecord<>(topic, new byte[10])).get().offset());
        }
    }

    private static void keys(Probes p) throws Exception {
        String topic = p.topic(5);
        Map<String, Integer> partitions = new HashMap<>();
        try (KafkaProducer<String, String> producer = p.producer()) {
            for (int i = 0; i < 100; i++) {
                String key = "key" + i % 20;
                int at = producer.send(new ProducerRecord<>(topic, key, "x")).get().partition();
                Probes.equal("partition of " + key, partitions.getOrDefault(key, at), at);
                partitions.put(key, at);
            }
        }
    }

    private static void createTime(Probes p) throws Exception {
        String topic = p.topic(1);
        try (KafkaProducer<String, String> producer = p.producer()) {
            Probes.equal("time", 12345L, producer.send(new ProducerRecord<>(topic, 0, 12345L, "k", "v")).get().timestamp());
        }
        ConsumerRecord<String, String> record = p.read(topic, 0, 1).get(0);
        Probes.equal("time", 12345L, record.timestamp());
        Probes.equal("kind of time", TimestampType.CREATE_TIME, record.timestampType());
    }

    private static void appendTime(Probes p) throws Exception {
        String topic = p.topic(1, "message.timestamp.type", "LogAppendTime");
        long before = System.currentTimeMillis();
        long said;
        try (KafkaProducer<String, String> producer = p.producer("compression.type", "zstd")) {
            said = producer.send(new ProducerRecord<>(topic, 0, 12345L, "k", "v")).get().timestamp();
        }
        Probes.check("time of the broker", said >= before - 1000 && said <= System.currentTimeMillis() + 1000);
        ConsumerRecord<String, String> record = p.read(topic, 0, 1).get(0);
        Probes.equal("time", said, record.timestamp());
        Probes.equal("kind of time", TimestampType.LOG_APPEND_TIME, record.timestampType());
    }

    private static void invalidTimestamp(Probes p) throws Exception {
        String topic = p.topic(1, "message.timestamp.before.max.ms", "1000");
        try (KafkaProducer<String, String> producer = p.producer()) {
            Probes.refused(InvalidTimestampException.class, () -> producer.send(new ProducerRecord<>(topic, 0, 12345L, "k", "v")).get());
            long future = System.currentTimeMillis() + 7_200_000;
            Probes.refused(InvalidTimestampException.class, () -> producer.send(new ProducerRecord<>(topic, 0, future, "k", "v")).get());
        }
    }

    private static void compacted(Probes p) throws Exception {
        String topic = p.topic(1, "cleanup.policy", "compact");
        try (KafkaProducer<String, String> producer = p.producer()) {
            InvalidRecordException e = Probes.refused(InvalidRecordException.class, () -> producer.send(new ProducerRecord<>(topic, "no key")).get());
            Probes.check("the reason is told: " + e.getMessage(), e.getMessage() != null && e.getMessage().toLowerCase().contains("key"));
            Probes.equal("offset with a key", 0L, producer.send(new ProducerRecord<>(topic, "key", "v")).get().offset());
        }
    }

    private static void createsTopic(Probes p) throws Exception {
        String topic = Probes.fresh("auto");
        try (KafkaProducer<String, String> producer = p.producer()) {
            Probes.equal("offset", 0L, producer.send(new ProducerRecord<>(topic, "v")).get().offset());
        }
        Probes.check("the topic is listed", p.admin.listTopics().names().get().contains(topic));
    }

    private static void partitionsFor(Probes p) throws Exception {
        String topic = p.topic(4);
        try (KafkaProducer<String, String> producer = p.producer()) {
            Probes.equal("partitions", 4, producer.partitionsFor(topic).size());
            producer.partitionsFor(topic).forEach(info -> Probes.equal("in sync", 1, info.inSyncReplicas().length));
        }
    }
}
