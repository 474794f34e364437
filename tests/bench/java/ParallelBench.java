import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Confluent's Parallel Consumer reads RECORDS records, ordered by key: ParallelBench BATCH BOOTSTRAP GROUP TOPIC RECORDS SECONDS_MAX
 * [PROPERTY=VALUE...]. Prints "records N seconds S", S from the first record handed to the user function to the last. The user function
 * only counts, as that of ConsumeBench does; concurrency, commit mode and buffers are the library's defaults. The property concurrency=N
 * sets the first; with work.ms=N each record takes so long, and N and S are those from a quarter of the records to nine tenths.
 */
public final class ParallelBench {
    public static void main(String[] arguments) throws InterruptedException {
        int batch = Integer.parseInt(arguments[0]);
        long wanted = Long.parseLong(arguments[4]);
        long secondsMax = Long.parseLong(arguments[5]);
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[1]);
        config.put("group.id", arguments[2]);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");  // the library commits itself, and insists
        for (int i = 6; i < arguments.length; i++) {
            String[] item = arguments[i].split("=", 2);
            config.put(item[0], item[1]);
        }
        String work = (String) config.remove("work.ms");
        String concurrency = (String) config.remove("concurrency");
        long workMs = work == null ? 0 : Long.parseLong(work);
        var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        var builder = ParallelConsumerOptions.<byte[], byte[]>builder().consumer(consumer).ordering(ProcessingOrder.KEY).batchSize(batch);
        if (concurrency != null) builder.maxConcurrency(Integer.parseInt(concurrency));
        var processor = ParallelStreamProcessor.createEosStreamProcessor(builder.build());
        processor.subscribe(List.of(arguments[3]));
        AtomicLong first = new AtomicLong();
        AtomicLong last = new AtomicLong();
        AtomicLong count = new AtomicLong();
        AtomicLong began = new AtomicLong();
        AtomicLong ended = new AtomicLong();
        long middle = work == null ? 0 : wanted / 4;
        long end = wanted * 9 / 10;
        AtomicLong bytes = new AtomicLong();
        CountDownLatch all = new CountDownLatch(1);
        processor.poll(context -> {
            if (first.get() == 0) first.compareAndSet(0, System.nanoTime());
            long size = 0;
            for (var record : context.getConsumerRecordsFlattened()) {
                size += record.value().length;
                if (work == null) continue;
                if (workMs > 0) pause(workMs);
                long done = count.incrementAndGet();
                if (done == middle) began.set(System.nanoTime());
                if (done == end) ended.set(System.nanoTime());
                if (done == wanted) all.countDown();
            }
            bytes.addAndGet(size);
            if (work != null) return;
            if (count.addAndGet(context.size()) >= wanted) {
                last.compareAndSet(0, System.nanoTime());
                all.countDown();
            }
        });
        boolean whole = all.await(secondsMax, TimeUnit.SECONDS);
        if (work != null) {
            double took = (ended.get() - began.get()) / 1e9;
            System.out.println("records " + (whole ? end - middle : 0) + " seconds " + took + " bytes " + bytes.get());
            System.out.flush();
            Runtime.getRuntime().halt(0);
        }
        double seconds = ((whole ? last.get() : System.nanoTime()) - first.get()) / 1e9;
        System.out.println("records " + count.get() + " seconds " + seconds + " bytes " + bytes.get());
        System.out.flush();
        Runtime.getRuntime().halt(0);  // its orderly end waits for commits that nobody measures
    }

    /** The work on one record. */
    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
