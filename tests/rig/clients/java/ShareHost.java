import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.StringJoiner;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Hosts KafkaShareConsumers for a test; the protocol is in share_lines.py. Each member lives on its own thread. */
public final class ShareHost {
    private static final HexFormat HEX = HexFormat.of();
    private static final StringBuilder OUTPUT = new StringBuilder();

    static synchronized void say(Object... fields) {
        StringJoiner line = new StringJoiner("\t");
        for (Object field : fields) line.add(String.valueOf(field));
        OUTPUT.append(line).append('\n');
    }

    static synchronized void flush() {
        System.out.print(OUTPUT);
        System.out.flush();
        OUTPUT.setLength(0);
    }

    static String text(byte[] data) {
        return data == null ? "-" : HEX.formatHex(data);
    }

    static String text(Throwable error) {
        Errors known = Errors.forException(error);
        if (known != Errors.UNKNOWN_SERVER_ERROR) return known.name();
        String name = error.getClass().getSimpleName();
        return (name + ": " + error.getMessage()).replace('\t', ' ').replace('\n', ' ');
    }

    static final class Member implements Runnable {
        final String name;
        final BlockingQueue<String[]> commands = new LinkedBlockingQueue<>();
        private KafkaShareConsumer<byte[], byte[]> consumer;
        private boolean explicit;
        volatile boolean stopping;
        private final Map<String, ConsumerRecord<byte[], byte[]>> held = new HashMap<>();

        Member(String name) {
            this.name = name;
        }

        @Override
        public void run() {
            while (true) {
                String[] command = null;
                try {
                    command = commands.take();
                    execute(command);
                    say(name, "done");
                } catch (Exception error) {
                    say(name, "failed", text(error));
                }
                flush();
                if (command != null && command[1].equals("close")) return;
            }
        }

        private void execute(String[] command) {
            switch (command[1]) {
                case "open" -> open(command);
                case "poll" -> read(Long.parseLong(command[2]));
                case "ack" -> acknowledge(command);
                case "commit" -> commit(Long.parseLong(command[2]));
                case "consume" -> consume(Long.parseLong(command[2]));
                case "close" -> consumer.close();
                default -> throw new IllegalArgumentException("unknown command " + command[1]);
            }
        }

        private void open(String[] command) {
            Properties config = new Properties();
            config.put("group.id", command[2]);
            for (int i = 4; i < command.length; i++) {
                String[] item = command[i].split("=", 2);
                config.put(item[0], item[1]);
            }
            explicit = "explicit".equals(config.get("share.acknowledgement.mode"));
            consumer = new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.setAcknowledgementCommitCallback(this::onAcked);
            consumer.subscribe(List.of(command[3].split(",")));
        }

        private void onAcked(Map<TopicIdPartition, Set<Long>> offsets, Exception error) {
            long now = System.nanoTime();
            String answer = error == null ? "OK" : text(error);
            offsets.forEach((place, numbers) -> numbers.stream().sorted().forEach(offset ->
                say(name, "acked", now, place.topic(), place.partition(), offset, answer)));
        }

        private List<ConsumerRecord<byte[], byte[]>> read(long timeoutMs) {
            List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
            consumer.poll(Duration.ofMillis(timeoutMs)).forEach(records::add);
            long now = System.nanoTime();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                if (explicit) held.put(place(record.topic(), record.partition(), record.offset()), record);
                StringJoiner headers = new StringJoiner(";");
                for (Header header : record.headers()) headers.add(header.key() + "=" + text(header.value()));
                say(name, "record", now, record.topic(), record.partition(), record.offset(),
                    record.deliveryCount().map(String::valueOf).orElse("-"), record.timestamp(),
                    text(record.key()), text(record.value()), headers);
            }
            flush();
            return records;
        }

        private static String place(String topic, int partition, long offset) {
            return topic + "/" + partition + "/" + offset;
        }

        private void acknowledge(String[] command) {
            AcknowledgeType verdict = AcknowledgeType.valueOf(command[2]);
            for (String offset : command[5].split(",")) {
                String place = place(command[3], Integer.parseInt(command[4]), Long.parseLong(offset));
                ConsumerRecord<byte[], byte[]> record = verdict == AcknowledgeType.RENEW ? held.get(place) : held.remove(place);
                if (record == null) throw new IllegalArgumentException("never delivered here: " + place);
                consumer.acknowledge(record, verdict);
            }
        }

        private void commit(long timeoutMs) {
            Map<TopicIdPartition, Optional<KafkaException>> results = consumer.commitSync(Duration.ofMillis(timeoutMs));
            results.forEach((place, error) -> say(name, "committed", System.nanoTime(), place.topic(), place.partition(),
                error.map(ShareHost::text).orElse("OK")));
        }

        private void consume(long totalMs) {
            long deadline = System.nanoTime() + totalMs * 1_000_000L;
            while (!stopping && System.nanoTime() < deadline) {
                List<ConsumerRecord<byte[], byte[]>> records = read(100);
                if (explicit) for (ConsumerRecord<byte[], byte[]> record : records) consumer.acknowledge(record, AcknowledgeType.ACCEPT);
            }
            stopping = false;
            held.clear();
            consumer.commitSync(Duration.ofSeconds(10));
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Member> members = new HashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] command = line.split("\t");
            if (!members.containsKey(command[0]) || command[1].equals("open")) {
                Member member = new Member(command[0]);
                members.put(command[0], member);
                Thread thread = new Thread(member, "member-" + command[0]);
                thread.setDaemon(true);
                thread.start();
            }
            if (command[1].equals("stop")) members.get(command[0]).stopping = true;
            else members.get(command[0]).commands.add(command);
        }
        Runtime.getRuntime().halt(0);
    }
}
