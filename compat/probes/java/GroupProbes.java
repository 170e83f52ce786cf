import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;

import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.InconsistentGroupProtocolException;
import org.apache.kafka.common.errors.InvalidGroupIdException;
import org.apache.kafka.common.errors.InvalidSessionTimeoutException;

/** What Java consumers do in groups, by the classic protocol. */
final class GroupProbes {
    private GroupProbes() { }

    static void register(Map<String, Probes.Probe> all) {
        for (Class<?> assignor : List.of(RangeAssignor.class, RoundRobinAssignor.class, StickyAssignor.class, CooperativeStickyAssignor.class)) {
            all.put("group-" + assignor.getSimpleName(), p -> assignor(p, assignor.getName()));
        }
        all.put("group-default-assignors", p -> assignor(p, RangeAssignor.class.getName() + "," + CooperativeStickyAssignor.class.getName()));
        all.put("group-resumes", GroupProbes::resumes);
        all.put("group-auto-commit", GroupProbes::autoCommit);
        all.put("group-static-member-returns", GroupProbes::staticReturns);
        all.put("group-static-member-fenced", GroupProbes::staticFenced);
        all.put("group-regex", GroupProbes::regex);
        all.put("group-commit-while-revoked", GroupProbes::commitWhileRevoked);
        all.put("group-slow-member", GroupProbes::slowMember);
        all.put("group-enforced-rebalance", GroupProbes::enforced);
        all.put("group-unsubscribe", GroupProbes::unsubscribe);
        all.put("group-more-partitions", GroupProbes::morePartitions);
        all.put("group-no-common-assignor", GroupProbes::noCommonAssignor);
        all.put("group-session-timeout-out-of-bounds", p -> Probes.refused(InvalidSessionTimeoutException.class, () -> {
            String topic = p.topic(1);
            try (KafkaConsumer<String, String> consumer = p.consumer("group.id", Probes.fresh("group"), "session.timeout.ms", "100",
                "heartbeat.interval.ms", "50")) {
                consumer.subscribe(List.of(topic));
                pollUntilRefused(consumer);
            }
        }));
        all.put("group-without-a-name", p -> Probes.refused(InvalidGroupIdException.class, () -> {
            try (KafkaConsumer<String, String> consumer = p.consumer()) {
                consumer.subscribe(List.of("any"));
            }
        }));
    }

    private static void pollUntilRefused(KafkaConsumer<?, ?> consumer) {
        Probes.await("the refusal", () -> {
            consumer.poll(Duration.ofMillis(100));
            return false;
        });
    }

    /** Polls several consumers in turn, as one thread may. */
    private static void pollAll(List<KafkaConsumer<String, String>> consumers) {
        consumers.forEach(consumer -> consumer.poll(Duration.ofMillis(50)));
    }

    /** Waits until these consumers have all the partitions, each one once. */
    private static void awaitSpread(List<KafkaConsumer<String, String>> consumers, Set<TopicPartition> all) {
        Probes.await("an assignment of " + all.size() + " partitions to " + consumers.size() + " members", () -> {
            pollAll(consumers);
            List<TopicPartition> given = new ArrayList<>();
            consumers.forEach(consumer -> given.addAll(consumer.assignment()));
            boolean each = consumers.stream().allMatch(consumer -> !consumer.assignment().isEmpty());
            return each && given.size() == all.size() && new HashSet<>(given).equals(all);
        });
    }

    private static void assignor(Probes p, String assignors) throws Exception {
        String topic = p.topic(6);
        String group = Probes.fresh("group");
        List<KafkaConsumer<String, String>> consumers = new ArrayList<>();
        try {
            for (int i = 0; i < 3; i++) {
                KafkaConsumer<String, String> consumer = p.consumer("group.id", group, "partition.assignment.strategy", assignors,
                    "heartbeat.interval.ms", "200");
                consumer.subscribe(List.of(topic));
                consumers.add(consumer);
                awaitSpread(consumers, Probes.partitions(topic, 6));
            }
            consumers.remove(0).close();
            awaitSpread(consumers, Probes.partitions(topic, 6));
            p.fill(topic, 0, 600);
            Set<String> values = new HashSet<>();
            Probes.await("all records", () -> {
                consumers.forEach(consumer -> consumer.poll(Duration.ofMillis(50)).forEach(record -> values.add(record.value())));
                return values.size() == 600;
            });
            consumers.forEach(KafkaConsumer::commitSync);
            Probes.equal("committed in all", 600L, consumers.get(0).committed(Probes.partitions(topic, 6)).values().stream()
                .mapToLong(at -> at.offset()).sum());
        } finally {
            consumers.forEach(KafkaConsumer::close);
        }
    }

    private static void resumes(Probes p) throws Exception {
        String topic = p.topic(1);
        String group = Probes.fresh("group");
        p.fill(topic, 0, 100);
        try (KafkaConsumer<String, String> consumer = p.consumer("group.id", group, "max.poll.records", "30")) {
            consumer.subscribe(List.of(topic));
            Probes.poll(consumer, 30);
            consumer.commitSync();
        }
        try (KafkaConsumer<String, String> consumer = p.consumer("group.id", group)) {
            consumer.subscribe(List.of(topic));
            Probes.equal("first after the commit", 30L, Probes.poll(consumer, 70).get(0).offset());
        }
    }

    private static void autoCommit(Probes p) throws Exception {
        String topic = p.topic(1);
        String group = Probes.fresh("group");
        p.fill(topic, 0, 40);
        try (KafkaConsumer<String, String> consumer = p.consumer("group.id", group, "enable.auto.commit", "true")) {
            consumer.subscribe(List.of(topic));
            Probes.poll(consumer, 40);
        } // closing commits
        p.fill(topic, 40, 50);
        try (KafkaConsumer<String, String> consumer = p.consumer("group.id", group)) {
            consumer.subscribe(List.of(topic));
            Probes.equal("first after the commit", 40L, Probes.poll(consumer, 10).get(0).offset());
        }
    }

    private static KafkaConsumer<String, String> staticMember(Probes p, String group, String instance, String topic) {
        KafkaConsumer<String, String> consumer = p.consumer("group.id", group, "group.instance.id", instance, "heartbeat.interval.ms", "200");
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    private static void staticReturns(Probes p) throws Exception {
        String topic = p.topic(4);
        String group = Probes.fresh("group");
        KafkaConsumer<String, String> stays = staticMember(p, group, "stays", topic);
        KafkaConsumer<String, String> returns = staticMember(p, group, "returns", topic);
        awaitSpread(List.of(stays, returns), Probes.partitions(topic, 4));
        Set<TopicPartition> had = returns.assignment();
        int generation = stays.groupMetadata().generationId();
        String member = returns.groupMetadata().memberId();
        returns.close(); // a static member does not leave
        returns = staticMember(p, group, "returns", topic);
        awaitSpread(List.of(stays, returns), Probes.partitions(topic, 4));
        Probes.equal("partitions after the return", had, returns.assignment());
        Probes.equal("generation", generation, stays.groupMetadata().generationId());
        Probes.equal("generation of the returned", generation, returns.groupMetadata().generationId());
        Probes.check("another member id", !member.equals(returns.groupMetadata().memberId()));
        stays.close();
        returns.close();
    }

    private static void staticFenced(Probes p) throws Exception {
        String topic = p.topic(2);
        String group = Probes.fresh("group");
        try (KafkaConsumer<String, String> first = staticMember(p, group, "one", topic)) {
            awaitSpread(List.of(first), Probes.partitions(topic, 2));
            try (KafkaConsumer<String, String> second = staticMember(p, group, "one", topic)) {
                awaitSpread(List.of(second), Probes.partitions(topic, 2));
                Probes.refused(FencedInstanceIdException.class, () -> pollUntilRefused(first));
                second.poll(Duration.ofMillis(100));
                Probes.equal("what the second has", Probes.partitions(topic, 2), second.assignment());
            }
        }
    }

    private static void regex(Probes p) throws Exception {
        String prefix = Probes.fresh("regex");
        NewTopic first = new NewTopic(prefix + ".one", 1, (short) 1);
        NewTopic second = new NewTopic(prefix + ".two", 2, (short) 1);
        p.admin.createTopics(List.of(first, new NewTopic("not-" + prefix, 1, (short) 1))).all().get();
        try (KafkaConsumer<String, String> consumer = p.consumer("group.id", Probes.fresh("group"), "metadata.max.age.ms", "300")) {
            consumer.subscribe(Pattern.compile(prefix + "\\..*"));
            awaitSpread(List.of(consumer), Probes.partitions(first.name(), 1));
            p.admin.createTopics(List.of(second)).all().get();
            Set<TopicPartition> both = new HashSet<>(Probes.partitions(first.name(), 1));
            both.addAll(Probes.partitions(second.name(), 2));
            awaitSpread(List.of(consumer), both);
            p.admin.deleteTopics(List.of(first.name())).all().get();
            awaitSpread(List.of(consumer), Probes.partitions(second.name(), 2));
        }
    }

    private static void commitWhileRevoked(Probes p) throws Exception {
        String topic = p.topic(2);
        String group = Probes.fresh("group");
        p.fill(topic, 0, 100);
        try (KafkaConsumer<String, String> first = p.consumer("group.id", group, "heartbeat.interval.ms", "200",
            "partition.assignment.strategy", RangeAssignor.class.getName())) {
            Map<TopicPartition, Long> at = new HashMap<>();
            first.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    partitions.forEach(partition -> at.put(partition, first.position(partition)));
                    first.commitSync();
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) { }
            });
            Probes.poll(first, 100);
            try (KafkaConsumer<String, String> second = p.consumer("group.id", group, "partition.assignment.strategy", RangeAssignor.class.getName())) {
                second.subscribe(List.of(topic));
                awaitSpread(List.of(first, second), Probes.partitions(topic, 2));
                Probes.equal("revoked", 2, at.size());
                TopicPartition given = second.assignment().iterator().next();
                Probes.equal("position of the second", at.get(given), second.position(given));
            }
        }
    }

    private static void slowMember(Probes p) throws Exception {
        String topic = p.topic(2);
        String group = Probes.fresh("group");
        p.fill(topic, 0, 10);
        try (KafkaConsumer<String, String> slow = p.consumer("group.id", group, "max.poll.interval.ms", "1500", "heartbeat.interval.ms", "200");
            KafkaConsumer<String, String> other = p.consumer("group.id", group, "heartbeat.interval.ms", "200")) {
            slow.subscribe(List.of(topic));
            Probes.poll(slow, 10);
            other.subscribe(List.of(topic));
            awaitSpread(List.of(other), Probes.partitions(topic, 2)); // without the slow one, which does not poll
            Probes.refused(CommitFailedException.class, slow::commitSync);
            awaitSpread(List.of(slow, other), Probes.partitions(topic, 2));
        }
    }

    private static void enforced(Probes p) throws Exception {
        String topic = p.topic(2);
        try (KafkaConsumer<String, String> consumer = p.consumer("group.id", Probes.fresh("group"))) {
            consumer.subscribe(List.of(topic));
            awaitSpread(List.of(consumer), Probes.partitions(topic, 2));
            int generation = consumer.groupMetadata().generationId();
            consumer.enforceRebalance("a probe asks for it");
            Probes.await("another generation", () -> {
                consumer.poll(Duration.ofMillis(50));
                return consumer.groupMetadata().generationId() > generation;
            });
        }
    }

    private static void unsubscribe(Probes p) throws Exception {
        String topic = p.topic(2);
        String another = p.topic(3);
        String group = Probes.fresh("group");
        try (KafkaConsumer<String, String> consumer = p.consumer("group.id", group)) {
            consumer.subscribe(List.of(topic));
            awaitSpread(List.of(consumer), Probes.partitions(topic, 2));
            consumer.subscribe(List.of(another));
            awaitSpread(List.of(consumer), Probes.partitions(another, 3));
            consumer.unsubscribe();
            Probes.equal("assignment", Collections.emptySet(), consumer.assignment());
            Probes.await("an empty group", () -> p.admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().isEmpty());
        }
    }

    private static void morePartitions(Probes p) throws Exception {
        String topic = p.topic(1);
        try (KafkaConsumer<String, String> consumer = p.consumer("group.id", Probes.fresh("group"), "metadata.max.age.ms", "300")) {
            consumer.subscribe(List.of(topic));
            awaitSpread(List.of(consumer), Probes.partitions(topic, 1));
            p.admin.createPartitions(Map.of(topic, org.apache.kafka.clients.admin.NewPartitions.increaseTo(4))).all().get();
            awaitSpread(List.of(consumer), Probes.partitions(topic, 4));
        }
    }

    private static void noCommonAssignor(Probes p) throws Exception {
        String topic = p.topic(2);
        String group = Probes.fresh("group");
        try (KafkaConsumer<String, String> first = p.consumer("group.id", group, "partition.assignment.strategy", RangeAssignor.class.getName());
            KafkaConsumer<String, String> second = p.consumer("group.id", group, "partition.assignment.strategy", RoundRobinAssignor.class.getName())) {
            first.subscribe(List.of(topic));
            awaitSpread(List.of(first), Probes.partitions(topic, 2));
            second.subscribe(List.of(topic));
            Probes.refused(InconsistentGroupProtocolException.class, () -> pollUntilRefused(second));
        }
    }
}
