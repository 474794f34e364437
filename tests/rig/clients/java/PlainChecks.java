import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Plain Java clients against one bootstrap address: PlainChecks BOOTSTRAP PREFIX [CHECK...]. One line per check on standard output:
 * "check NAME OK" or "check NAME FAILED why". Topics and groups are named PREFIX-something.
 */
public final class PlainChecks {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long WAIT_MS = 150_000;

    private final String bootstrap;
    private final String prefix;

    private PlainChecks(String bootstrap, String prefix) {
        this.bootstrap = bootstrap;
        this.prefix = prefix;
    }

    private interface Check {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        PlainChecks checks = new PlainChecks(arguments[0], arguments[1]);
        Map<String, Check> all = new LinkedHashMap<>();
        all.put("compressions", checks::compressions);
        all.put("acknowledgements", checks::acknowledgements);
        all.put("transactions", checks::transactions);
        all.put("classic_group", () -> checks.rebalance("classic"));
        all.put("kip848_group", () -> checks.rebalance("consumer"));
        all.put("transactional_offsets", checks::transactionalOffsets);
        Set<String> wanted = new HashSet<>(List.of(arguments).subList(2, arguments.length));
        // Side by side: most of a rebalance is waiting for heartbeats.
        List<Thread> threads = new ArrayList<>();
        all.forEach((name, check) -> {
            if (wanted.isEmpty() || wanted.contains(name)) threads.add(new Thread(() -> run(name, check)));
        });
        for (Thread thread : threads) thread.start();
        for (Thread thread : threads) thread.join();
    }

    private static void run(String name, Check check) {
        long started = System.currentTimeMillis();
        try {
            check.run();
            System.out.println("check\t" + name + "\tOK");
        } catch (Throwable failure) {
            System.out.println("check\t" + name + "\tFAILED " + failure.toString().replace('\n', ' '));
            failure.printStackTrace();
        }
        System.err.println(name + " took " + (System.currentTimeMillis() - started) + " ms");
    }

    private KafkaProducer<String, String> producer(String... items) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("delivery.timeout.ms", "120000");
        config.put("request.timeout.ms", "15000");
        for (int i = 0; i < items.length; i += 2) config.put(items[i], items[i + 1]);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(String group, String... items) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("auto.offset.reset", "earliest");
        for (int i = 0; i < items.length; i += 2) config.put(items[i], items[i + 1]);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    private String topic(String name, int partitions) throws Exception {
        String topic = prefix + "-" + name;
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", (Object) bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
        return topic;
    }

    private static void require(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    private static void await(String what, BooleanSupplier holds) {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (!holds.getAsBoolean()) require(System.currentTimeMillis() < deadline, "not within 150 s: " + what);
    }

    private List<String> readAll(String topic, int partitions, int count, String isolation) {
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(topic + "-reader", "isolation.level", isolation, "enable.auto.commit", "false")) {
            List<TopicPartition> all = new ArrayList<>();
            for (int i = 0; i < partitions; i++) all.add(new TopicPartition(topic, i));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            await(count + " records of " + topic + " as " + isolation, () -> {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) values.add(record.value());
                return values.size() >= count;
            });
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            await("positions at the log end", () -> {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) values.add(record.value());
                return all.stream().allMatch(place -> consumer.position(place) >= ends.get(place));
            });
        }
        return values;
    }

    private void compressions() throws Exception {
        String topic = topic("compressions", 2);
        Set<String> sent = new TreeSet<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (KafkaProducer<String, String> producer = producer("compression.type", codec, "linger.ms", "20")) {
                for (int i = 0; i < 200; i++) {
                    String value = codec + "-" + i + "-" + "x".repeat(100);
                    sent.add(value);
                    producer.send(new ProducerRecord<>(topic, "key" + i % 7, value));
                }
            }
        }
        List<String> got = readAll(topic, 2, 1000, "read_uncommitted");
        require(got.size() == 1000 && new TreeSet<>(got).equals(sent), "1,000 different values come back, got " + got.size());
    }

    private void acknowledgements() throws Exception {
        String topic = topic("acknowledgements", 1);
        for (String acks : List.of("0", "1", "all")) {
            String idempotent = String.valueOf(acks.equals("all"));
            try (KafkaProducer<String, String> producer = producer("acks", acks, "enable.idempotence", idempotent)) {
                for (int i = 0; i < 100; i++) producer.send(new ProducerRecord<>(topic, acks + "-" + i)).get();
            }
        }
        List<String> got = readAll(topic, 1, 300, "read_uncommitted");
        require(got.size() == 300 && new HashSet<>(got).size() == 300, "300 values once each, got " + got.size());
    }

    private void transactions() throws Exception {
        String topic = topic("transactions", 2);
        try (KafkaProducer<String, String> producer = producer("transactional.id", prefix + "-tx")) {
            producer.initTransactions();
            for (String outcome : List.of("first", "aborted", "second")) {
                producer.beginTransaction();
                for (int i = 0; i < 50; i++) producer.send(new ProducerRecord<>(topic, "key" + i, outcome));
                producer.flush();
                if (outcome.equals("aborted")) producer.abortTransaction();
                else producer.commitTransaction();
            }
        }
        List<String> committed = readAll(topic, 2, 100, "read_committed");
        require(committed.size() == 100 && !committed.contains("aborted"), "100 committed records, got " + committed.size());
        List<String> all = readAll(topic, 2, 150, "read_uncommitted");
        require(all.size() == 150, "150 records in all, got " + all.size());
    }

    private void transactionalOffsets() throws Exception {
        String from = topic("copy-from", 1);
        String to = topic("copy-to", 1);
        String group = prefix + "-copier";
        try (KafkaProducer<String, String> plain = producer()) {
            for (int i = 0; i < 30; i++) plain.send(new ProducerRecord<>(from, "v" + i)).get();
        }
        try (KafkaProducer<String, String> producer = producer("transactional.id", prefix + "-copier");
             KafkaConsumer<String, String> consumer = consumer(group, "enable.auto.commit", "false", "isolation.level", "read_committed")) {
            producer.initTransactions();
            consumer.subscribe(List.of(from));
            int[] copied = {0};
            await("30 copied records", () -> {
                var records = consumer.poll(POLL);
                if (records.isEmpty()) return copied[0] >= 30;
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(to, record.value()));
                    offsets.put(new TopicPartition(from, record.partition()), new OffsetAndMetadata(record.offset() + 1));
                    copied[0]++;
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.commitTransaction();
                return copied[0] >= 30;
            });
            OffsetAndMetadata committed = consumer.committed(Set.of(new TopicPartition(from, 0))).get(new TopicPartition(from, 0));
            require(committed != null && committed.offset() == 30, "committed offset 30, is " + committed);
        }
        require(readAll(to, 1, 30, "read_committed").size() == 30, "30 records copied");
    }

    /** Two members share four partitions, a third joins, two leave; records flow at every stage. */
    private void rebalance(String protocol) throws Exception {
        String topic = topic("group-" + protocol, 4);
        String group = prefix + "-" + protocol;
        List<KafkaConsumer<String, String>> members = new ArrayList<>();
        Set<String> seen = new HashSet<>();
        try (KafkaProducer<String, String> producer = producer()) {
            for (int i = 0; i < 2; i++) members.add(joined(group, topic, protocol));
            await("2 + 2 partitions", () -> pollAll(members, seen).equals(List.of(2, 2)));
            members.add(joined(group, topic, protocol));
            await("a third member with partitions", () -> {
                List<Integer> sizes = pollAll(members, seen);
                return sizes.stream().mapToInt(Integer::intValue).sum() == 4 && sizes.stream().allMatch(size -> size >= 1);
            });
            for (int i = 0; i < 100; i++) producer.send(new ProducerRecord<>(topic, "key" + i, "v" + i));
            producer.flush();
            await("100 records at three members", () -> { pollAll(members, seen); return seen.size() == 100; });
            members.remove(2).close();
            members.remove(1).close();
            await("all partitions at the last member", () -> pollAll(members, seen).equals(List.of(4)));
            for (int i = 100; i < 200; i++) producer.send(new ProducerRecord<>(topic, "key" + i, "v" + i));
            producer.flush();
            await("200 records", () -> { pollAll(members, seen); return seen.size() == 200; });
            members.get(0).commitSync();
            Map<TopicPartition, OffsetAndMetadata> committed = members.get(0).committed(new HashSet<>(members.get(0).assignment()));
            long total = committed.values().stream().mapToLong(OffsetAndMetadata::offset).sum();
            require(total == 200, "committed offsets add up to 200, are " + total);
        } finally {
            for (KafkaConsumer<String, String> member : members) member.close();
        }
    }

    private KafkaConsumer<String, String> joined(String group, String topic, String protocol) {
        KafkaConsumer<String, String> member = protocol.equals("classic")
            ? consumer(group, "group.protocol", protocol, "heartbeat.interval.ms", "300", "session.timeout.ms", "10000")
            : consumer(group, "group.protocol", protocol);
        member.subscribe(List.of(topic));
        return member;
    }

    private static List<Integer> pollAll(Collection<KafkaConsumer<String, String>> members, Set<String> seen) {
        List<Integer> sizes = new ArrayList<>();
        for (KafkaConsumer<String, String> member : members) {
            for (ConsumerRecord<String, String> record : member.poll(Duration.ofMillis(100))) seen.add(record.value());
            sizes.add(member.assignment().size());
        }
        return sizes;
    }
}
