import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Java Admin client against one bootstrap address: AdminChecks BOOTSTRAP PREFIX REPLICAS. Prints "address API HOST:PORT" for every
 * address the client learns, "check NAME OK" or "check NAME FAILED why" for every operation.
 */
public final class AdminChecks {
    private static final int RECORDS = 40;

    private final Admin admin;
    private final String bootstrap;
    private final String topic;
    private final String group;
    private final short replicas;
    private final long startMs = System.currentTimeMillis() - 60_000;

    private AdminChecks(Admin admin, String bootstrap, String prefix, short replicas) {
        this.admin = admin;
        this.bootstrap = bootstrap;
        this.topic = prefix + "-admin";
        this.group = prefix + "-admin-group";
        this.replicas = replicas;
    }

    private interface Check {
        void run() throws Exception;
    }

    public static void main(String[] arguments) {
        Map<String, Object> config = Map.of("bootstrap.servers", arguments[0], "default.api.timeout.ms", "30000");
        try (Admin admin = Admin.create(config)) {
            AdminChecks checks = new AdminChecks(admin, arguments[0], arguments[1], Short.parseShort(arguments[2]));
            run("create_topic", checks::createTopic);
            run("describe_cluster", checks::describeCluster);
            run("describe_topic_partitions", checks::describeTopicPartitions);
            run("describe_topics_by_id", checks::describeTopicsById);
            run("list_offsets", checks::listOffsets);
            run("delete_records", checks::deleteRecords);
            run("configs", checks::configs);
            run("group_offsets", checks::groupOffsets);
            run("create_partitions", checks::createPartitions);
            run("describe_quorum", checks::describeQuorum);
            run("producers_and_transactions", checks::producersAndTransactions);
            run("features_and_log_dirs", checks::featuresAndLogDirs);
        }
    }

    private static void run(String name, Check check) {
        try {
            check.run();
            System.out.println("check\t" + name + "\tOK");
        } catch (Throwable failure) {
            System.out.println("check\t" + name + "\tFAILED " + failure.toString().replace('\n', ' '));
            failure.printStackTrace();
        }
    }

    private static void require(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    private static void learned(String api, Collection<Node> nodes) {
        for (Node node : nodes) System.out.println("address\t" + api + "\t" + node.host() + ":" + node.port());
    }

    private static void learned(String api, TopicDescription description) {
        for (TopicPartitionInfo partition : description.partitions()) {
            learned(api, List.of(partition.leader()));
            learned(api, partition.replicas());
            learned(api, partition.isr());
        }
    }

    private void createTopic() throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, 2, replicas))).all().get();
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "acks", "all");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < RECORDS; i++) producer.send(new ProducerRecord<>(topic, i % 2, startMs + i, "key", "v" + i)).get();
        }
        require(admin.listTopics().names().get().contains(topic), "the topic is listed");
    }

    private void describeCluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        learned("describe_cluster", cluster.nodes().get());
        learned("describe_cluster_controller", List.of(cluster.controller().get()));
        require(cluster.nodes().get().size() == replicas, "as many brokers as upstream");
        require(!cluster.clusterId().get().isEmpty(), "a cluster id");
    }

    private void describeTopicPartitions() throws Exception {
        // One partition per response: the client pages with a cursor, an API of its own (DescribeTopicPartitions).
        DescribeTopicsOptions options = new DescribeTopicsOptions().partitionSizeLimitPerResponse(1);
        TopicDescription description = admin.describeTopics(List.of(topic), options).allTopicNames().get().get(topic);
        require(description.partitions().size() == 2, "two partitions");
        learned("describe_topic_partitions", description);
    }

    private void describeTopicsById() throws Exception {
        TopicDescription named = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        var byId = admin.describeTopics(TopicCollection.ofTopicIds(List.of(named.topicId()))).allTopicIds().get();
        learned("describe_topics_by_id", byId.get(named.topicId()));
    }

    private void listOffsets() throws Exception {
        TopicPartition place = new TopicPartition(topic, 0);
        require(admin.listOffsets(Map.of(place, OffsetSpec.earliest())).partitionResult(place).get().offset() == 0, "earliest");
        require(admin.listOffsets(Map.of(place, OffsetSpec.latest())).partitionResult(place).get().offset() == RECORDS / 2, "latest");
        long at = admin.listOffsets(Map.of(place, OffsetSpec.forTimestamp(startMs + 10))).partitionResult(place).get().offset();
        require(at == 5, "the offset at a timestamp, is " + at);
        long max = admin.listOffsets(Map.of(place, OffsetSpec.maxTimestamp())).partitionResult(place).get().offset();
        require(max == RECORDS / 2 - 1, "the offset of the greatest timestamp, is " + max);
    }

    private void deleteRecords() throws Exception {
        TopicPartition place = new TopicPartition(topic, 1);
        long low = admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(7))).lowWatermarks().get(place).get().lowWatermark();
        require(low == 7, "low watermark 7, is " + low);
        require(admin.listOffsets(Map.of(place, OffsetSpec.earliest())).partitionResult(place).get().offset() == 7, "earliest is 7");
    }

    private void configs() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry("retention.ms", "123456"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
        long deadline = System.currentTimeMillis() + 15_000; // any broker answers, and may learn of it last
        String value = null;
        while (!"123456".equals(value)) {
            require(System.currentTimeMillis() < deadline, "the config that was set, is " + value);
            value = admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value();
        }
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(node));
        require(!admin.describeConfigs(List.of(broker)).all().get().get(broker).entries().isEmpty(), "broker configs");
    }

    private void groupOffsets() throws Exception {
        TopicPartition place = new TopicPartition(topic, 0);
        admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(11, "note"))).all().get();
        var offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        require(offsets.get(place).offset() == 11 && offsets.get(place).metadata().equals("note"), "the offset that was set");
        learned("describe_consumer_groups", List.of(admin.describeConsumerGroups(List.of(group)).all().get().get(group).coordinator()));
        require(admin.listGroups().all().get().stream().anyMatch(it -> it.groupId().equals(group)), "the group is listed");
        admin.deleteConsumerGroupOffsets(group, Set.of(place)).all().get();
        admin.deleteConsumerGroups(List.of(group)).all().get();
    }

    private void createPartitions() throws Exception {
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
        long deadline = System.currentTimeMillis() + 15_000;
        while (admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() != 3) {
            require(System.currentTimeMillis() < deadline, "three partitions within 15 s");
        }
    }

    private void describeQuorum() throws Exception {
        QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
        require(quorum.leaderId() >= 0, "a quorum leader");
        quorum.nodes().values().forEach(node -> node.endpoints().forEach(endpoint ->
            System.out.println("address\tdescribe_quorum\t" + endpoint.host() + ":" + endpoint.port())));
    }

    private void producersAndTransactions() throws Exception {
        TopicPartition place = new TopicPartition(topic, 0);
        require(!admin.describeProducers(List.of(place)).all().get().get(place).activeProducers().isEmpty(), "an idempotent producer");
        admin.listTransactions().all().get();
    }

    private void featuresAndLogDirs() throws Exception {
        require(admin.describeFeatures().featureMetadata().get().finalizedFeatures().containsKey("metadata.version"), "features");
        List<Integer> nodes = new ArrayList<>();
        for (Node node : admin.describeCluster().nodes().get()) nodes.add(node.id());
        require(admin.describeLogDirs(nodes).allDescriptions().get().size() == replicas, "log dirs of every broker");
    }
}
