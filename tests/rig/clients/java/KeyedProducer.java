import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringSerializer;

/** As tests/rig/clients/keyed_producer.py, with the Java client. */
public final class KeyedProducer {
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int first = Integer.parseInt(args[2]), keys = Integer.parseInt(args[3]), rate = Integer.parseInt(args[4]);
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("linger.ms", "5");
        for (int i = 5; i < args.length; i++) config.put(args[i].split("=", 2)[0], args[i].split("=", 2)[1]);
        Object before = config.remove("sent.before");
        int sent = before == null ? 0 : Integer.parseInt((String) before);
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
        List<String> failed = Collections.synchronizedList(new ArrayList<>());
        Object records = config.remove("transaction.records");
        int transaction = records == null ? 0 : Integer.parseInt((String) records);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            if (transaction > 0) producer.initTransactions();
            for (int number = 0; transaction > 0 && !ended.get(); number++) {
                boolean aborts = number % 4 == 3;
                producer.beginTransaction();
                try {
                    for (int at = sent; at < sent + transaction; at++) {
                        send(producer, topic, first + at % keys, aborts ? -1 : at / keys, rate, null);
                    }
                    if (aborts) {
                        producer.abortTransaction();
                    } else {
                        commit(producer);
                        sent += transaction;
                    }
                } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                    throw fenced;
                } catch (KafkaException failure) {
                    producer.abortTransaction();
                }
            }
            while (!ended.get()) {
                send(producer, topic, first + sent % keys, sent / keys, rate, failed);
                sent++;
            }
            producer.flush();
        }
        int[] counts = new int[keys];
        for (int at = 0; at < keys; at++) counts[at] = (sent - at + keys - 1) / keys;
        StringBuilder named = new StringBuilder();
        for (int at = 0; at < keys; at++) {
            named.append(at == 0 ? "" : ",").append("\"key-").append(first + at).append("\":").append(counts[at]);
        }
        StringBuilder failures = new StringBuilder();
        for (String one : failed) failures.append(failures.length() == 0 ? "" : ",").append('"').append(one).append('"');
        System.out.println("{\"sent\":" + sent + ",\"failed\":[" + failures + "],\"left\":0,\"keys\":{" + named + "}}");
    }

    /** `failed` null: the transaction fails. */
    private static void send(KafkaProducer<String, String> producer, String topic, int key, int number, int rate, List<String> failed) throws InterruptedException {
        String value = Integer.toString(number);
        producer.send(new ProducerRecord<>(topic, "key-" + key, value), (done, error) -> {
            if (error != null && failed != null) failed.add(value + ": " + error.getMessage().replace('"', '\''));
        });
        Thread.sleep(Math.max(1, 1000 / rate));
    }

    private static void commit(KafkaProducer<String, String> producer) {
        for (int attempt = 0; ; attempt++) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException slow) {
                if (attempt == 20) throw slow;
            }
        }
    }
}
