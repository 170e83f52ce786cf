import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DeleteConsumerGroupsResult;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicaAssignmentException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidRequestException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.NoReassignmentInProgressException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** What Java's Admin asks. */
final class AdminProbes {
    private AdminProbes() { }

    static void register(Map<String, Probes.Probe> all) {
        all.put("admin-topics", AdminProbes::topics);
        all.put("admin-topics-refused", AdminProbes::topicsRefused);
        all.put("admin-topics-validate-only", AdminProbes::validateOnly);
        all.put("admin-topics-by-id", AdminProbes::topicsById);
        all.put("admin-describe-topics-in-pages", AdminProbes::describeInPages);
        all.put("admin-create-partitions", AdminProbes::createPartitions);
        all.put("admin-describe-configs", AdminProbes::describeConfigs);
        all.put("admin-incremental-alter-configs", AdminProbes::alterConfigs);
        all.put("admin-configs-refused", AdminProbes::configsRefused);
        all.put("admin-broker-configs", AdminProbes::brokerConfigs);
        all.put("admin-list-config-resources", AdminProbes::listConfigResources);
        all.put("admin-describe-cluster", AdminProbes::describeCluster);
        all.put("admin-describe-features", AdminProbes::describeFeatures);
        all.put("admin-authorized-operations", AdminProbes::authorizedOperations);
        all.put("admin-elect-leaders", AdminProbes::electLeaders);
        all.put("admin-reassignments", AdminProbes::reassignments);
        all.put("admin-log-dirs", AdminProbes::logDirs);
        all.put("admin-delete-records", AdminProbes::deleteRecords);
        all.put("admin-list-offsets", AdminProbes::listOffsets);
        all.put("admin-describe-producers", AdminProbes::describeProducers);
        all.put("admin-list-groups", AdminProbes::listGroups);
        all.put("admin-describe-groups", AdminProbes::describeGroups);
        all.put("admin-group-offsets", AdminProbes::groupOffsets);
        all.put("admin-delete-groups", AdminProbes::deleteGroups);
        all.put("admin-remove-members", AdminProbes::removeMembers);
    }

    private static TopicDescription describe(Probes p, String topic) throws Exception {
        return p.admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    private static void topics(Probes p) throws Exception {
        String plain = Probes.fresh("plain");
        String placed = Probes.fresh("placed");
        NewTopic first = new NewTopic(plain, 3, (short) 1).configs(Map.of("retention.ms", "1234567"));
        NewTopic second = new NewTopic(placed, Map.of(0, List.of(1), 1, List.of(1)));
        NewTopic third = new NewTopic(Probes.fresh("default"), Optional.empty(), Optional.empty());
        CreateTopicsResult created = p.admin.createTopics(List.of(first, second, third));
        created.all().get();
        Probes.equal("partitions", 3, created.numPartitions(plain).get());
        Probes.equal("replication factor", 1, created.replicationFactor(plain).get());
        Probes.equal("setting", "1234567", created.config(plain).get().get("retention.ms").value());
        Probes.equal("default partitions", 1, created.numPartitions(third.name()).get());
        Probes.check("listed", p.admin.listTopics().names().get().containsAll(Set.of(plain, placed, third.name())));
        TopicDescription described = describe(p, plain);
        Probes.equal("id", created.topicId(plain).get(), described.topicId());
        Probes.equal("id in the list", described.topicId(), p.admin.listTopics().namesToListings().get().get(plain).topicId());
        Probes.equal("partitions", 3, described.partitions().size());
        described.partitions().forEach(partition -> {
            Probes.equal("leader", 1, partition.leader().id());
            Probes.equal("in sync", 1, partition.isr().size());
        });
        p.admin.deleteTopics(List.of(plain, placed, third.name())).all().get();
        Probes.check("gone", !p.admin.listTopics().names().get().contains(plain));
        Probes.refused(UnknownTopicOrPartitionException.class, () -> describe(p, plain));
        p.admin.createTopics(List.of(first)).all().get();
        Probes.check("another id", !described.topicId().equals(describe(p, plain).topicId()));
    }

    private static void create(Probes p, NewTopic topic) throws Exception {
        p.admin.createTopics(List.of(topic)).all().get();
    }

    private static void topicsRefused(Probes p) throws Exception {
        String there = p.topic(1);
        String name = Probes.fresh("refused");
        Probes.refused(TopicExistsException.class, () -> create(p, new NewTopic(there, 1, (short) 1)));
        Probes.refused(InvalidPartitionsException.class, () -> create(p, new NewTopic(name, 0, (short) 1)));
        Probes.refused(InvalidReplicationFactorException.class, () -> create(p, new NewTopic(name, 1, (short) 0)));
        Probes.refused(InvalidReplicationFactorException.class, () -> create(p, new NewTopic(name, 1, (short) 7)));
        Probes.refused(InvalidTopicException.class, () -> create(p, new NewTopic("not a name", 1, (short) 1)));
        Probes.refused(InvalidTopicException.class, () -> create(p, new NewTopic("x".repeat(250), 1, (short) 1)));
        Probes.refused(InvalidTopicException.class, () -> create(p, new NewTopic("..", 1, (short) 1)));
        Probes.refused(InvalidReplicaAssignmentException.class, () -> create(p, new NewTopic(name, Map.of(0, List.of(77)))));
        Probes.refused(InvalidReplicaAssignmentException.class, () -> create(p, new NewTopic(name, Map.of(0, List.of(1, 1)))));
        Probes.refused(InvalidReplicaAssignmentException.class, () -> create(p, new NewTopic(name, Map.of(1, List.of(1)))));
        Probes.refused(InvalidConfigurationException.class, () -> create(p, new NewTopic(name, 1, (short) 1).configs(Map.of("nonsense", "1"))));
        Probes.refused(InvalidConfigurationException.class, () -> create(p, new NewTopic(name, 1, (short) 1).configs(Map.of("retention.ms", "x"))));
        Probes.refused(InvalidTopicException.class, () -> create(p, new NewTopic("", 1, (short) 1)));
        Probes.refused(UnknownTopicOrPartitionException.class, () -> p.admin.deleteTopics(List.of(name)).all().get());
        Probes.check("nothing came of it", !p.admin.listTopics().names().get().contains(name));
    }

    private static void validateOnly(Probes p) throws Exception {
        String name = Probes.fresh("validated");
        CreateTopicsOptions validate = new CreateTopicsOptions().validateOnly(true);
        CreateTopicsResult result = p.admin.createTopics(List.of(new NewTopic(name, 5, (short) 1)), validate);
        result.all().get();
        Probes.equal("partitions", 5, result.numPartitions(name).get());
        Probes.refused(InvalidPartitionsException.class, () -> p.admin.createTopics(List.of(new NewTopic(name, 0, (short) 1)), validate).all().get());
        String there = p.topic(1);
        Probes.refused(TopicExistsException.class, () -> p.admin.createTopics(List.of(new NewTopic(there, 1, (short) 1)), validate).all().get());
        Probes.check("not created", !p.admin.listTopics().names().get().contains(name));
    }

    private static void topicsById(Probes p) throws Exception {
        String topic = p.topic(2);
        Uuid id = describe(p, topic).topicId();
        Probes.equal("name", topic, p.admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id).name());
        Uuid unknown = Uuid.randomUuid();
        Probes.refused(UnknownTopicIdException.class, () -> p.admin.describeTopics(TopicCollection.ofTopicIds(List.of(unknown))).allTopicIds().get());
        Probes.refused(UnknownTopicIdException.class, () -> p.admin.deleteTopics(TopicCollection.ofTopicIds(List.of(unknown))).all().get());
        p.admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        Probes.check("gone", !p.admin.listTopics().names().get().contains(topic));
    }

    private static void describeInPages(Probes p) throws Exception {
        String one = p.topic(7);
        String two = p.topic(5);
        Map<String, TopicDescription> described = p.admin.describeTopics(List.of(one, two),
            new DescribeTopicsOptions().partitionSizeLimitPerResponse(3)).allTopicNames().get();
        Probes.equal("partitions", 7, described.get(one).partitions().size());
        Probes.equal("partitions", 5, described.get(two).partitions().size());
    }

    private static void createPartitions(Probes p) throws Exception {
        String topic = p.topic(2);
        p.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3, List.of(List.of(1))))).all().get();
        p.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
        Probes.equal("partitions", 5, describe(p, topic).partitions().size());
        Probes.refused(InvalidPartitionsException.class, () -> p.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get());
        Probes.refused(InvalidPartitionsException.class, () -> p.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all().get());
        Probes.refused(InvalidReplicaAssignmentException.class,
            () -> p.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(7, List.of(List.of(1))))).all().get());
        Probes.refused(UnknownTopicOrPartitionException.class,
            () -> p.admin.createPartitions(Map.of(Probes.fresh("none"), NewPartitions.increaseTo(2))).all().get());
    }

    private static Config configOf(Probes p, ConfigResource of) throws Exception {
        return p.admin.describeConfigs(List.of(of), new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true)).all().get().get(of);
    }

    private static ConfigResource resource(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    private static void describeConfigs(Probes p) throws Exception {
        String topic = p.topic(1, "segment.bytes", "2097152");
        Config config = configOf(p, resource(topic));
        ConfigEntry segment = config.get("segment.bytes");
        Probes.equal("value", "2097152", segment.value());
        Probes.equal("source", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, segment.source());
        Probes.equal("type", ConfigEntry.ConfigType.INT, segment.type());
        Probes.check("documentation", segment.documentation() != null && !segment.documentation().isEmpty());
        Probes.equal("synonyms", 2, segment.synonyms().size());
        Probes.equal("synonym", "log.segment.bytes", segment.synonyms().get(1).name());
        Probes.equal("default", ConfigEntry.ConfigSource.DEFAULT_CONFIG, config.get("max.message.bytes").source());
        Probes.equal("list", ConfigEntry.ConfigType.LIST, config.get("cleanup.policy").type());
        Probes.check("writable", !segment.isReadOnly() && !segment.isSensitive());
        // What is described can be set as it is.
        Map<ConfigResource, Collection<AlterConfigOp>> back = new HashMap<>();
        back.put(resource(topic), config.entries().stream().filter(e -> e.value() != null && !e.value().isEmpty())
            .map(e -> new AlterConfigOp(new ConfigEntry(e.name(), e.value()), AlterConfigOp.OpType.SET)).toList());
        p.admin.incrementalAlterConfigs(back, new AlterConfigsOptions().validateOnly(true)).all().get();
    }

    private static void alter(Probes p, ConfigResource of, AlterConfigOp.OpType op, String name, String value) throws Exception {
        p.admin.incrementalAlterConfigs(Map.of(of, List.of(new AlterConfigOp(new ConfigEntry(name, value), op)))).all().get();
    }

    private static void alterConfigs(Probes p) throws Exception {
        ConfigResource topic = resource(p.topic(1));
        alter(p, topic, AlterConfigOp.OpType.SET, "retention.ms", "5000");
        Probes.equal("set", "5000", configOf(p, topic).get("retention.ms").value());
        alter(p, topic, AlterConfigOp.OpType.DELETE, "retention.ms", "");
        Probes.equal("deleted", "604800000", configOf(p, topic).get("retention.ms").value());
        alter(p, topic, AlterConfigOp.OpType.APPEND, "cleanup.policy", "compact");
        Probes.equal("appended", "delete,compact", configOf(p, topic).get("cleanup.policy").value());
        alter(p, topic, AlterConfigOp.OpType.SUBTRACT, "cleanup.policy", "delete");
        Probes.equal("subtracted", "compact", configOf(p, topic).get("cleanup.policy").value());
        p.admin.incrementalAlterConfigs(Map.of(topic, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "7"), AlterConfigOp.OpType.SET))),
            new AlterConfigsOptions().validateOnly(true)).all().get();
        Probes.equal("validated only", "604800000", configOf(p, topic).get("retention.ms").value());
    }

    private static void configsRefused(Probes p) throws Exception {
        ConfigResource topic = resource(p.topic(1));
        Probes.refused(InvalidConfigurationException.class, () -> alter(p, topic, AlterConfigOp.OpType.SET, "nonsense", "1"));
        Probes.refused(InvalidConfigurationException.class, () -> alter(p, topic, AlterConfigOp.OpType.SET, "retention.ms", "x"));
        Probes.refused(InvalidConfigurationException.class, () -> alter(p, topic, AlterConfigOp.OpType.SET, "min.cleanable.dirty.ratio", "1.5"));
        Probes.refused(InvalidConfigurationException.class, () -> alter(p, topic, AlterConfigOp.OpType.APPEND, "retention.ms", "5"));
        Probes.refused(UnknownTopicOrPartitionException.class,
            () -> alter(p, resource(Probes.fresh("none")), AlterConfigOp.OpType.SET, "retention.ms", "5"));
        Probes.refused(UnknownTopicOrPartitionException.class, () -> configOf(p, resource(Probes.fresh("none"))));
        Probes.refused(InvalidTopicException.class, () -> configOf(p, resource("not a name")));
        p.admin.incrementalAlterConfigs(Map.of(topic, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "1"), AlterConfigOp.OpType.SET)))).all().get();
        Probes.equal("no trace of what was refused", "1", configOf(p, topic).get("retention.ms").value());
    }

    private static void brokerConfigs(Probes p) throws Exception {
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        ConfigResource all = new ConfigResource(ConfigResource.Type.BROKER, "");
        Probes.equal("node id", "1", configOf(p, broker).get("node.id").value());
        Probes.check("node id is fixed", configOf(p, broker).get("node.id").isReadOnly());
        alter(p, all, AlterConfigOp.OpType.SET, "message.max.bytes", "2000000");
        alter(p, broker, AlterConfigOp.OpType.SET, "message.max.bytes", "3000000");
        ConfigEntry limit = configOf(p, broker).get("message.max.bytes");
        Probes.equal("value", "3000000", limit.value());
        Probes.equal("source", ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG, limit.source());
        Probes.equal("synonyms", 3, limit.synonyms().size());
        Probes.equal("a topic follows", "3000000", configOf(p, resource(p.topic(1))).get("max.message.bytes").value());
        alter(p, broker, AlterConfigOp.OpType.DELETE, "message.max.bytes", "");
        limit = configOf(p, broker).get("message.max.bytes");
        Probes.equal("source", ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, limit.source());
        Probes.equal("value", "2000000", limit.value());
        alter(p, all, AlterConfigOp.OpType.DELETE, "message.max.bytes", "");
        Probes.equal("value", "1048588", configOf(p, broker).get("message.max.bytes").value());
        Probes.refused(InvalidRequestException.class, () -> alter(p, broker, AlterConfigOp.OpType.SET, "node.id", "9"));
    }

    private static void listConfigResources(Probes p) throws Exception {
        String topic = p.topic(1);
        Set<ConfigResource> all = new HashSet<>(p.admin.listConfigResources().all().get());
        Probes.check("the topic", all.contains(resource(topic)));
        Probes.check("the broker", all.contains(new ConfigResource(ConfigResource.Type.BROKER, "1")));
    }

    private static void describeCluster(Probes p) throws Exception {
        DescribeClusterResult cluster = p.admin.describeCluster();
        Probes.equal("id", 22, cluster.clusterId().get().length());
        Probes.equal("nodes", 1, cluster.nodes().get().size());
        Probes.equal("controller", 1, cluster.controller().get().id());
        Probes.check("not fenced", !cluster.nodes().get().iterator().next().isFenced());
        Probes.equal("fenced ones too", 1, p.admin.describeCluster(new DescribeClusterOptions().includeFencedBrokers(true)).nodes().get().size());
    }

    private static void describeFeatures(Probes p) throws Exception {
        Probes.check("metadata.version", p.admin.describeFeatures().featureMetadata().get().finalizedFeatures().containsKey("metadata.version"));
    }

    private static void authorizedOperations(Probes p) throws Exception {
        String topic = p.topic(1);
        Set<AclOperation> onTopic = p.admin.describeTopics(List.of(topic), new DescribeTopicsOptions().includeAuthorizedOperations(true))
            .allTopicNames().get().get(topic).authorizedOperations();
        Probes.equal("on a topic", Set.of(AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER,
            AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS), onTopic);
        Set<AclOperation> onCluster = p.admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true)).authorizedOperations().get();
        Probes.equal("on the cluster", Set.of(AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE), onCluster);
        Probes.equal("without asking", null, describe(p, topic).authorizedOperations());
    }

    private static void electLeaders(Probes p) throws Exception {
        String topic = p.topic(2);
        TopicPartition there = new TopicPartition(topic, 0);
        TopicPartition missing = new TopicPartition(topic, 9);
        for (ElectionType type : ElectionType.values()) {
            Map<TopicPartition, Optional<Throwable>> elected = p.admin.electLeaders(type, Set.of(there, missing)).partitions().get();
            Probes.equal("led already", ElectionNotNeededException.class, elected.get(there).get().getClass());
            Probes.equal("not there", UnknownTopicOrPartitionException.class, elected.get(missing).get().getClass());
        }
        Probes.equal("where it is needed", Map.of(), p.admin.electLeaders(ElectionType.PREFERRED, null).partitions().get());
    }

    private static void reassign(Probes p, TopicPartition at, Optional<NewPartitionReassignment> to) throws Exception {
        p.admin.alterPartitionReassignments(Map.of(at, to)).all().get();
    }

    private static Optional<NewPartitionReassignment> brokers(Integer... ids) {
        return Optional.of(new NewPartitionReassignment(List.of(ids)));
    }

    private static void reassignments(Probes p) throws Exception {
        TopicPartition at = new TopicPartition(p.topic(1), 0);
        reassign(p, at, brokers(1)); // where it is
        Probes.equal("going on", Map.of(), p.admin.listPartitionReassignments().reassignments().get());
        Probes.equal("going on there", Map.of(), p.admin.listPartitionReassignments(Set.of(at)).reassignments().get());
        Probes.refused(NoReassignmentInProgressException.class, () -> reassign(p, at, Optional.empty()));
        Probes.refused(InvalidReplicaAssignmentException.class, () -> reassign(p, at, brokers(7)));
        Probes.refused(InvalidReplicaAssignmentException.class, () -> reassign(p, at, brokers(1, 1)));
        Probes.refused(UnknownTopicOrPartitionException.class, () -> reassign(p, new TopicPartition(at.topic(), 9), brokers(1)));
        Probes.refused(UnknownTopicOrPartitionException.class, () -> reassign(p, new TopicPartition(Probes.fresh("none"), 0), brokers(1)));
        Probes.equal("replicas", 1, describe(p, at.topic()).partitions().get(0).replicas().size());
    }

    private static void logDirs(Probes p) throws Exception {
        String topic = p.topic(1);
        p.fill(topic, 0, 100);
        Map<String, LogDirDescription> dirs = p.admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1);
        Probes.equal("directories", 1, dirs.size());
        LogDirDescription dir = dirs.values().iterator().next();
        Probes.equal("error", null, dir.error());
        Probes.check("bytes", dir.totalBytes().getAsLong() > 0 && dir.usableBytes().getAsLong() > 0);
        TopicPartition at = new TopicPartition(topic, 0);
        Probes.check("size", dir.replicaInfos().get(at).size() > 100);
        Probes.equal("lag", 0L, dir.replicaInfos().get(at).offsetLag());
        TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, 1);
        Probes.equal("directory of the replica", dirs.keySet().iterator().next(),
            p.admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica).getCurrentReplicaLogDir());
    }

    private static void deleteRecords(Probes p) throws Exception {
        String topic = p.topic(1);
        p.fill(topic, 0, 100);
        TopicPartition at = new TopicPartition(topic, 0);
        Probes.equal("low watermark", 30L, p.admin.deleteRecords(Map.of(at, RecordsToDelete.beforeOffset(30))).lowWatermarks().get(at).get().lowWatermark());
        Probes.equal("earlier ones again", 30L,
            p.admin.deleteRecords(Map.of(at, RecordsToDelete.beforeOffset(10))).lowWatermarks().get(at).get().lowWatermark());
        Probes.refused(OffsetOutOfRangeException.class, () -> p.admin.deleteRecords(Map.of(at, RecordsToDelete.beforeOffset(101))).all().get());
        Probes.equal("all", 100L, p.admin.deleteRecords(Map.of(at, RecordsToDelete.beforeOffset(-1))).lowWatermarks().get(at).get().lowWatermark());
    }

    private static void listOffsets(Probes p) throws Exception {
        String topic = p.topic(1, "retention.ms", "-1");
        TopicPartition at = new TopicPartition(topic, 0);
        Probes.equal("greatest time of nothing", -1L, offset(p, at, OffsetSpec.maxTimestamp()).offset());
        try (KafkaProducer<String, String> producer = p.producer("linger.ms", "50")) {
            for (long time : List.of(1000L, 5000L, 3000L, 4000L)) {
                producer.send(new ProducerRecord<>(topic, 0, time, null, "x"));
            }
        }
        p.admin.deleteRecords(Map.of(at, RecordsToDelete.beforeOffset(1))).all().get();
        Probes.equal("earliest", 1L, offset(p, at, OffsetSpec.earliest()).offset());
        Probes.equal("latest", 4L, offset(p, at, OffsetSpec.latest()).offset());
        Probes.equal("greatest time", 1L, offset(p, at, OffsetSpec.maxTimestamp()).offset());
        Probes.equal("greatest time", 5000L, offset(p, at, OffsetSpec.maxTimestamp()).timestamp());
        Probes.equal("from 2000 on", 1L, offset(p, at, OffsetSpec.forTimestamp(2000)).offset());
        Probes.equal("from 6000 on", -1L, offset(p, at, OffsetSpec.forTimestamp(6000)).offset());
        Probes.equal("earliest on disk", 1L, offset(p, at, OffsetSpec.earliestLocal()).offset());
        Probes.equal("latest tiered", -1L, offset(p, at, OffsetSpec.latestTiered()).offset());
        Probes.equal("earliest not tiered", -1L, offset(p, at, OffsetSpec.earliestPendingUpload()).offset());
        Probes.equal("epoch", Optional.of(0), offset(p, at, OffsetSpec.latest()).leaderEpoch());
    }

    private static ListOffsetsResultInfo offset(Probes p, TopicPartition at, OffsetSpec spec) throws Exception {
        return p.admin.listOffsets(Map.of(at, spec)).all().get().get(at);
    }

    private static void describeProducers(Probes p) throws Exception {
        String topic = p.topic(1);
        TopicPartition at = new TopicPartition(topic, 0);
        p.fill(topic, 0, 10);
        List<ProducerState> active = p.admin.describeProducers(List.of(at)).all().get().get(at).activeProducers();
        Probes.equal("producers", 1, active.size());
        Probes.equal("last sequence", 9, active.get(0).lastSequence());
        Probes.check("no transaction", active.get(0).currentTransactionStartOffset().isEmpty());
    }

    private static KafkaConsumer<String, String> member(Probes p, String group, String topic, Object... settings) {
        Map<String, Object> all = new HashMap<>(Map.of("group.id", group, "heartbeat.interval.ms", "200", "client.id", "probe"));
        for (int i = 0; i < settings.length; i += 2) {
            all.put((String) settings[i], settings[i + 1]);
        }
        KafkaConsumer<String, String> consumer = p.consumer(all.entrySet().stream().flatMap(e -> java.util.stream.Stream.of(e.getKey(), e.getValue())).toArray());
        consumer.subscribe(List.of(topic));
        Probes.await("an assignment", () -> {
            consumer.poll(Duration.ofMillis(50));
            return !consumer.assignment().isEmpty();
        });
        return consumer;
    }

    private static void listGroups(Probes p) throws Exception {
        String group = Probes.fresh("listed");
        String simple = Probes.fresh("simple");
        String topic = p.topic(1);
        p.admin.alterConsumerGroupOffsets(simple, Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(0))).all().get();
        try (KafkaConsumer<String, String> consumer = member(p, group, topic)) {
            Map<String, GroupListing> all = byName(p.admin.listGroups().all().get());
            Probes.equal("state", Optional.of(GroupState.STABLE), all.get(group).groupState());
            Probes.equal("type", Optional.of(GroupType.CLASSIC), all.get(group).type());
            Probes.equal("protocol", "consumer", all.get(group).protocol());
            Probes.equal("protocol of the simple one", "", all.get(simple).protocol());
            Probes.check("a simple one", all.get(simple).isSimpleConsumerGroup());
            Probes.check("stable ones", byName(p.admin.listGroups(new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE))).all().get()).containsKey(group));
            Probes.check("empty ones", !byName(p.admin.listGroups(new ListGroupsOptions().inGroupStates(Set.of(GroupState.EMPTY))).all().get()).containsKey(group));
            Probes.check("by type", byName(p.admin.listGroups(new ListGroupsOptions().withTypes(Set.of(GroupType.CLASSIC))).all().get()).containsKey(group));
            Probes.check("consumer groups", byName(p.admin.listGroups(ListGroupsOptions.forConsumerGroups()).all().get()).keySet().containsAll(Set.of(group, simple)));
        }
    }

    private static Map<String, GroupListing> byName(Collection<GroupListing> groups) {
        Map<String, GroupListing> all = new HashMap<>();
        groups.forEach(group -> all.put(group.groupId(), group));
        return all;
    }

    private static void describeGroups(Probes p) throws Exception {
        String group = Probes.fresh("described");
        String topic = p.topic(2);
        try (KafkaConsumer<String, String> consumer = member(p, group, topic, "group.instance.id", "fixed")) {
            ConsumerGroupDescription described = p.admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            Probes.equal("state", GroupState.STABLE, described.groupState());
            Probes.equal("assignor", "range", described.partitionAssignor());
            Probes.equal("coordinator", 1, described.coordinator().id());
            Probes.equal("members", 1, described.members().size());
            described.members().forEach(member -> {
                Probes.equal("client", "probe", member.clientId());
                Probes.equal("instance", Optional.of("fixed"), member.groupInstanceId());
                Probes.equal("host", "/127.0.0.1", member.host());
                Probes.equal("assignment", Probes.partitions(topic, 2), member.assignment().topicPartitions());
                Probes.equal("member", consumer.groupMetadata().memberId(), member.consumerId());
            });
            Probes.equal("as a classic group", "consumer", p.admin.describeClassicGroups(List.of(group)).all().get().get(group).protocol());
        }
        Probes.refused(GroupIdNotFoundException.class, () -> p.admin.describeConsumerGroups(List.of(Probes.fresh("none"))).all().get());
    }

    private static void groupOffsets(Probes p) throws Exception {
        String one = Probes.fresh("one");
        String two = Probes.fresh("two");
        String topic = p.topic(2);
        TopicPartition first = new TopicPartition(topic, 0);
        TopicPartition second = new TopicPartition(topic, 1);
        p.admin.alterConsumerGroupOffsets(one, Map.of(first, new OffsetAndMetadata(5, Optional.of(0), "five"), second, new OffsetAndMetadata(6))).all().get();
        p.admin.alterConsumerGroupOffsets(two, Map.of(first, new OffsetAndMetadata(7))).all().get();
        var offsets = p.admin.listConsumerGroupOffsets(Map.of(one, new ListConsumerGroupOffsetsSpec(),
            two, new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(first, second)))).all().get();
        Probes.equal("first group", Map.of(first, new OffsetAndMetadata(5, Optional.of(0), "five"), second, new OffsetAndMetadata(6)), offsets.get(one));
        Map<TopicPartition, OffsetAndMetadata> want = new HashMap<>();
        want.put(first, new OffsetAndMetadata(7));
        want.put(second, null);
        Probes.equal("second group", want, offsets.get(two));
        p.admin.deleteConsumerGroupOffsets(one, Set.of(first)).all().get();
        Probes.equal("after the deletion", Map.of(second, new OffsetAndMetadata(6)),
            p.admin.listConsumerGroupOffsets(one).partitionsToOffsetAndMetadata().get());
        Probes.refused(GroupIdNotFoundException.class, () -> p.admin.deleteConsumerGroupOffsets(Probes.fresh("none"), Set.of(first)).all().get());
        Probes.refused(UnknownTopicOrPartitionException.class, () -> p.admin.alterConsumerGroupOffsets(one,
            Map.of(new TopicPartition(topic, 9), new OffsetAndMetadata(1))).all().get());
        Probes.equal("offsets of nobody", Map.of(), p.admin.listConsumerGroupOffsets(Probes.fresh("none")).partitionsToOffsetAndMetadata().get());
        try (KafkaConsumer<String, String> consumer = member(p, two, topic)) {
            Probes.refused(GroupSubscribedToTopicException.class, () -> p.admin.deleteConsumerGroupOffsets(two, Set.of(first)).all().get());
            Probes.refused(UnknownMemberIdException.class, () -> p.admin.alterConsumerGroupOffsets(two, Map.of(first, new OffsetAndMetadata(1))).all().get());
        }
    }

    private static void deleteGroups(Probes p) throws Exception {
        String empty = Probes.fresh("empty");
        String live = Probes.fresh("live");
        String topic = p.topic(1);
        p.admin.alterConsumerGroupOffsets(empty, Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1))).all().get();
        try (KafkaConsumer<String, String> consumer = member(p, live, topic)) {
            DeleteConsumerGroupsResult result = p.admin.deleteConsumerGroups(List.of(empty, live, "nobody"));
            result.deletedGroups().get(empty).get();
            Probes.refused(GroupNotEmptyException.class, () -> result.deletedGroups().get(live).get());
            Probes.refused(GroupIdNotFoundException.class, () -> result.deletedGroups().get("nobody").get());
        }
        Probes.check("gone", !byName(p.admin.listGroups().all().get()).containsKey(empty));
        p.admin.deleteConsumerGroups(List.of(live)).all().get();
        p.admin.deleteTopics(List.of(topic)).all().get();
    }

    private static void removeMembers(Probes p) throws Exception {
        String group = Probes.fresh("removed");
        String topic = p.topic(2);
        member(p, group, topic, "group.instance.id", "one").close(); // static ones stay when they close
        Probes.equal("members", 1, p.admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().size());
        Probes.refused(UnknownMemberIdException.class, () -> p.admin.removeMembersFromConsumerGroup(group,
            new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("another")))).all().get());
        p.admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("one")))).all().get();
        Probes.equal("members", 0, p.admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().size());
        member(p, group, topic, "group.instance.id", "two").close();
        p.admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions()).all().get();
        Probes.equal("members", 0, p.admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().size());
    }
}
