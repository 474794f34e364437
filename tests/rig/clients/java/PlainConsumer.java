import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** As tests/rig/clients/plain_consumer.py, with the Java client. */
public final class PlainConsumer {
    public static void main(String[] args) throws Exception {
        int pause = Integer.parseInt(args[3]);
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[2]);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("metadata.max.age.ms", "500");
        for (int i = 4; i < args.length; i++) config.put(args[i].split("=", 2)[0], args[i].split("=", 2)[1]);
        AtomicBoolean ended = new AtomicBoolean();
        Thread reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException broken) {
                // as its end
            }
            ended.set(true);
        });
        reader.setDaemon(true);
        reader.start();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            List<String> topics = List.of(args[1].split(","));
            consumer.subscribe(topics);
            while (!ended.get()) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) continue;
                long came = System.nanoTime();
                Thread.sleep(pause);
                long done = System.nanoTime();
                StringBuilder lines = new StringBuilder();
                for (ConsumerRecord<String, String> record : records) {
                    int partition = 1000 * topics.indexOf(record.topic()) + record.partition();
                    lines.append(came).append(' ').append(done).append(' ').append(partition).append(' ');
                    lines.append(record.key()).append(' ').append(record.value()).append('\n');
                }
                System.out.print(lines);
                System.out.flush();
                try {
                    consumer.commitSync();
                } catch (org.apache.kafka.clients.consumer.CommitFailedException | org.apache.kafka.common.errors.RebalanceInProgressException moved) {
                    // the records come again, to whoever has the partition now
                }
            }
        }
    }
}
