// Kafka's own record code behind a line protocol: builds, reads, compacts and consumes record batches.
//
// It lives in a package of kafka-clients because the two classes that decide what a consumer sees
// (CompletedFetch, ShareCompletedFetch) can be made from there alone. One command per line on stdin, fields split by
// tabs, bytes in base64, "-" for null; the answer is some lines and then a line with a dot. An exception is a line
// "E <class> <message>".
//
// read <bytes>                                   -> a B line per batch, an R line per record, CRCs checked
// build <codec> <log append time or -1> <base> <pid> <epoch> <sequence> <transactional> <leader epoch> <last or -1>
//       then one line per record, then a dot     -> bytes
// marker <base> <pid> <epoch> <commit>           -> bytes
// magic <0 or 1>                                 -> bytes
// compact <bytes> <offsets> <delete horizon>     -> bytes, as the log cleaner keeps these offsets
// consume <bytes> <pid:first offset,...>         -> R lines of a read_committed consumer, N <next offset>
// share <bytes> <first:last,...> <max records>   -> per poll: P, its R lines, X for an exception, A <offset> <type>
package org.apache.kafka.clients.consumer.internals;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.ShareFetchResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.LogContext;

public final class RecordsOracle {
    private static final TopicPartition PARTITION = new TopicPartition("topic", 0);
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static final LogContext LOG = new LogContext();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            List<String> records = new ArrayList<>();
            if (fields[0].equals("build")) {
                for (line = in.readLine(); !line.equals("."); line = in.readLine()) {
                    records.add(line);
                }
            }
            try {
                answer(fields, records);
            } catch (RuntimeException error) {
                OUT.println("E\t" + error.getClass().getSimpleName() + "\t" + oneLine(error));
            }
            OUT.println(".");
            OUT.flush();
        }
    }

    private static void answer(String[] fields, List<String> records) {
        switch (fields[0]) {
            case "read" -> read(bytes(fields[1]));
            case "build" -> OUT.println(text(build(fields, records)));
            case "marker" -> OUT.println(text(marker(fields)));
            case "magic" -> OUT.println(text(MemoryRecords.withRecords(
                Byte.parseByte(fields[1]), Compression.NONE, new SimpleRecord(1, new byte[] {1}, new byte[] {2})).buffer()));
            case "compact" -> OUT.println(text(compact(fields)));
            case "consume" -> consume(bytes(fields[1]), fields[2]);
            case "share" -> share(bytes(fields[1]), fields[2], Integer.parseInt(fields[3]));
            default -> throw new IllegalArgumentException(fields[0]);
        }
    }

    private static void read(byte[] data) {
        MemoryRecords all = MemoryRecords.readableRecords(ByteBuffer.wrap(data));
        for (RecordBatch batch : all.batches()) {
            batch.ensureValid();
            OUT.println(String.join("\t", "B", "" + batch.baseOffset(), "" + batch.lastOffset(),
                "" + batch.countOrNull(), "" + batch.magic(), batch.compressionType().name,
                "" + batch.isTransactional(), "" + batch.isControlBatch(), "" + batch.producerId(),
                "" + batch.producerEpoch(), "" + batch.baseSequence(), "" + batch.partitionLeaderEpoch(),
                batch.timestampType().name, "" + batch.maxTimestamp(), "" + batch.nextOffset(),
                "" + batch.deleteHorizonMs().orElse(-1)));
            for (Record record : batch) {
                record.ensureValid();
                print(record.offset(), record.timestamp(), bytes(record.key()), bytes(record.value()), record.headers());
            }
        }
        if (all.validBytes() != data.length) {
            throw new IllegalStateException((data.length - all.validBytes()) + " bytes behind the last batch");
        }
    }

    private static ByteBuffer build(String[] fields, List<String> records) {
        long appendTime = Long.parseLong(fields[2]);
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1024), RecordBatch.CURRENT_MAGIC_VALUE,
            Compression.of(CompressionType.forName(fields[1])).build(),
            appendTime < 0 ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME, Long.parseLong(fields[3]), appendTime,
            Long.parseLong(fields[4]), Short.parseShort(fields[5]), Integer.parseInt(fields[6]),
            Boolean.parseBoolean(fields[7]), Integer.parseInt(fields[8]));
        for (String line : records) {
            String[] record = line.split("\t", -1);
            Header[] headers = new Header[(record.length - 4) / 2];
            for (int i = 0; i < headers.length; i++) {
                headers[i] = new RecordHeader(
                    new String(bytes(record[4 + 2 * i]), StandardCharsets.UTF_8), bytes(record[5 + 2 * i]));
            }
            builder.appendWithOffset(Long.parseLong(record[0]), Long.parseLong(record[1]), bytes(record[2]), bytes(record[3]), headers);
        }
        if (!fields[9].equals("-1")) {
            builder.overrideLastOffset(Long.parseLong(fields[9]));
        }
        return builder.build().buffer();
    }

    private static ByteBuffer marker(String[] fields) {
        ControlRecordType type = Boolean.parseBoolean(fields[4]) ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        return MemoryRecords.withEndTransactionMarker(Long.parseLong(fields[1]), 1000L, 3, Long.parseLong(fields[2]),
            Short.parseShort(fields[3]), new EndTransactionMarker(type, 0)).buffer();
    }

    private static ByteBuffer compact(String[] fields) {
        Set<Long> keep = new HashSet<>();
        for (String offset : fields[2].isEmpty() ? new String[0] : fields[2].split(",")) {
            keep.add(Long.parseLong(offset));
        }
        MemoryRecords.RecordFilter filter = new MemoryRecords.RecordFilter(Long.parseLong(fields[3]), 0) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(BatchRetention.RETAIN_EMPTY, false);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return keep.contains(record.offset());
            }
        };
        MemoryRecords source = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(fields[1])));
        ByteBuffer kept = source.filterTo(filter, ByteBuffer.allocate(1 << 20), BufferSupplier.NO_CACHING).outputBuffer();
        kept.flip();
        return kept;
    }

    private static void consume(byte[] data, String aborted) {
        SubscriptionState positions = new SubscriptionState(LOG, AutoOffsetResetStrategy.EARLIEST);
        positions.assignFromUser(Set.of(PARTITION));
        positions.seek(PARTITION, 0);
        List<FetchResponseData.AbortedTransaction> transactions = new ArrayList<>();
        for (String transaction : aborted.isEmpty() ? new String[0] : aborted.split(",")) {
            String[] parts = transaction.split(":");
            transactions.add(new FetchResponseData.AbortedTransaction()
                .setProducerId(Long.parseLong(parts[0])).setFirstOffset(Long.parseLong(parts[1])));
        }
        FetchResponseData.PartitionData answer = new FetchResponseData.PartitionData()
            .setRecords(MemoryRecords.readableRecords(ByteBuffer.wrap(data))).setAbortedTransactions(transactions);
        try (Metrics metrics = new Metrics()) {
            CompletedFetch fetch = new CompletedFetch(LOG.logger(RecordsOracle.class), positions, BufferSupplier.NO_CACHING, PARTITION,
                answer, new FetchMetricsAggregator(
                    new FetchMetricsManager(metrics, new FetchMetricsRegistry("oracle")), Set.of(PARTITION)), 0L);
            FetchConfig config = new FetchConfig(1, 1, 1, 1, 1, true, "", IsolationLevel.READ_COMMITTED);
            for (ConsumerRecord<byte[], byte[]> record : fetch.fetchRecords(config, deserializers(metrics), Integer.MAX_VALUE)) {
                print(record);
            }
            OUT.println("N\t" + fetch.nextFetchOffset());
        }
    }

    private static void share(byte[] data, String ranges, int recordsMax) {
        TopicIdPartition partition = new TopicIdPartition(Uuid.ONE_UUID, PARTITION);
        List<ShareFetchResponseData.AcquiredRecords> acquired = new ArrayList<>();
        for (String range : ranges.split(",")) {
            String[] ends = range.split(":");
            acquired.add(new ShareFetchResponseData.AcquiredRecords().setFirstOffset(Long.parseLong(ends[0]))
                .setLastOffset(Long.parseLong(ends[1])).setDeliveryCount((short) 1));
        }
        ShareFetchResponseData.PartitionData answer = new ShareFetchResponseData.PartitionData()
            .setRecords(MemoryRecords.readableRecords(ByteBuffer.wrap(data))).setAcquiredRecords(acquired);
        try (Metrics metrics = new Metrics()) {
            ShareCompletedFetch fetch = new ShareCompletedFetch(LOG, BufferSupplier.NO_CACHING, 0, partition, answer,
                Optional.of(30_000), new ShareFetchMetricsAggregator(
                    new ShareFetchMetricsManager(metrics, new ShareFetchMetricsRegistry("oracle")), new HashSet<>(Set.of(PARTITION))), (short) 2);
            while (!fetch.isConsumed()) {
                ShareInFlightBatch<byte[], byte[]> polled = fetch.fetchRecords(deserializers(metrics), recordsMax, true);
                OUT.println("P");
                for (ConsumerRecord<byte[], byte[]> record : polled.getInFlightRecords()) {
                    print(record);
                }
                KafkaException exception = polled.getException();
                if (exception != null) {
                    OUT.println("X\t" + oneLine(exception));
                }
                Map<Long, AcknowledgeType> settled = new TreeMap<>(polled.getAcknowledgements().getAcknowledgementsTypeMap());
                settled.forEach((offset, type) -> OUT.println("A\t" + offset + "\t" + type));
            }
        }
    }

    private static Deserializers<byte[], byte[]> deserializers(Metrics metrics) {
        return new Deserializers<>(new ByteArrayDeserializer(), new ByteArrayDeserializer(), metrics);
    }

    private static void print(ConsumerRecord<byte[], byte[]> record) {
        print(record.offset(), record.timestamp(), record.key(), record.value(), record.headers().toArray());
    }

    private static void print(long offset, long timestamp, byte[] key, byte[] value, Header[] headers) {
        StringBuilder line = new StringBuilder("R\t").append(offset).append('\t').append(timestamp)
            .append('\t').append(text(key)).append('\t').append(text(value));
        for (Header header : headers) {
            line.append('\t').append(text(header.key().getBytes(StandardCharsets.UTF_8))).append('\t').append(text(header.value()));
        }
        OUT.println(line);
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return copy;
    }

    private static String text(byte[] data) {
        return data == null ? "-" : Base64.getEncoder().encodeToString(data);
    }

    private static String text(ByteBuffer buffer) {
        return text(bytes(buffer));
    }

    private static String oneLine(Throwable error) {
        return String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
    }
}
