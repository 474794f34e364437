import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One Java consumer reads RECORDS records: ConsumeBench share|plain BOOTSTRAP GROUP TOPIC RECORDS SECONDS_MAX [PROPERTY=VALUE...]. Prints
 * "records N seconds S", S from the first poll that returned records to the last. Share consumers acknowledge implicitly.
 */
public final class ConsumeBench {
    private static final Duration POLL = Duration.ofMillis(200);

    private interface Source {
        ConsumerRecords<byte[], byte[]> poll();

        void close();
    }

    public static void main(String[] arguments) {
        boolean share = arguments[0].equals("share");
        long wanted = Long.parseLong(arguments[4]);
        long secondsMax = Long.parseLong(arguments[5]);
        Source source = share ? shareSource(arguments) : plainSource(arguments);
        long deadline = System.nanoTime() + secondsMax * 1_000_000_000L;
        long first = 0;
        long count = 0;
        long bytes = 0;
        while (count < wanted && System.nanoTime() < deadline) {
            ConsumerRecords<byte[], byte[]> records = source.poll();
            if (records.isEmpty()) continue;
            if (first == 0) first = System.nanoTime();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                count++;
                bytes += record.value().length;
            }
        }
        double seconds = (System.nanoTime() - first) / 1e9;
        source.close();
        System.out.println("records " + count + " seconds " + seconds + " bytes " + bytes);
    }

    private static Properties config(String[] arguments) {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[1]);
        config.put("group.id", arguments[2]);
        for (int i = 6; i < arguments.length; i++) {
            String[] item = arguments[i].split("=", 2);
            config.put(item[0], item[1]);
        }
        return config;
    }

    private static Source shareSource(String[] arguments) {
        var consumer = new KafkaShareConsumer<>(config(arguments), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(arguments[3]));
        return new Source() {
            @Override public ConsumerRecords<byte[], byte[]> poll() { return consumer.poll(POLL); }
            @Override public void close() { consumer.close(); }
        };
    }

    private static Source plainSource(String[] arguments) {
        Properties config = config(arguments);
        config.put("auto.offset.reset", "earliest");
        var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(arguments[3]));
        return new Source() {
            @Override public ConsumerRecords<byte[], byte[]> poll() { return consumer.poll(POLL); }
            @Override public void close() { consumer.close(); }
        };
    }
}
