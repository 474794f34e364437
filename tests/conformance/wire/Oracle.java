// kafka-clients as an oracle of the wire format. Reads commands from standard input, one a line, answers with one line
// each ("facts": several, up to a line "end"). Bytes are hexadecimal.
//
//   facts                                   error CODE NAME | api ID NAME NAME' OLDEST LATEST REQUEST_HEADER/RESPONSE_HEADER...
//   read KEY request|response VERSION HEX   ok HEX JSON: what kafka-clients reads, written again, and as its JSON
//   make KEY request|response VERSION SEED  ok HEX HEX: random bytes of Kafka's own schema, and those read and written again
//   skeleton KEY request|response VERSION   ok HEX: defaults everywhere, one element in each array of structs, no struct
//                                           null; the tagged ones have an unknown tag 77, so that they are written
//   header HEX                              ok KEY VERSION CORRELATION =CLIENT_ID SIZE HEX: a request header, and it written again
//
// An exception is answered with "error" and its text.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.ArrayOf;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.CompactArrayOf;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.RequestHeader;

public class Oracle {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            try {
                out.println(answer(words));
            } catch (Exception error) {
                out.println("error " + String.valueOf(error).replace('\n', ' '));
            }
        }
        out.flush();
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "facts":
                return facts();
            case "header":
                return header(HEX.parseHex(words[1]));
            case "read": {
                short version = Short.parseShort(words[3]);
                ApiMessage message = read(words, HEX.parseHex(words[4]));
                return "ok " + write(message, version) + " " + json(message, version);
            }
            case "make": {
                short version = Short.parseShort(words[3]);
                byte[] bytes = make(schemas(words)[version], new Random(Long.parseLong(words[4])));
                return "ok " + HEX.formatHex(bytes) + " " + write(read(words, bytes), version);
            }
            case "skeleton": {
                short version = Short.parseShort(words[3]);
                ApiMessage message = message(words);
                fill(message, schemas(words)[version], false);
                return "ok " + write(message, version);
            }
            default:
                throw new IllegalArgumentException("no command " + words[0]);
        }
    }

    private static String facts() {
        StringBuilder text = new StringBuilder();
        for (Errors error : Errors.values())
            text.append("error ").append(error.code()).append(' ').append(error.name()).append('\n');
        for (ApiKeys key : ApiKeys.values()) {
            text.append("api ").append(key.id).append(' ').append(key.name()).append(' ').append(key.name);
            if (key.hasValidVersion()) {
                short oldest = key.oldestVersion();
                short latest = key.latestVersion();
                text.append(' ').append(oldest).append(' ').append(latest);
                for (short version = oldest; version <= latest; version++)
                    text.append(' ').append(key.requestHeaderVersion(version))
                        .append('/').append(key.responseHeaderVersion(version));
            }
            text.append('\n');
        }
        return text + "end";
    }

    private static String header(byte[] bytes) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        RequestHeader header = RequestHeader.parse(buffer);
        return "ok " + header.apiKey().id + " " + header.apiVersion() + " " + header.correlationId() + " =" + header.clientId()
            + " " + buffer.position() + " " + write(header.data(), header.headerVersion());
    }

    private static Schema[] schemas(String[] words) {
        ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(words[1]));
        return words[2].equals("request") ? type.requestSchemas() : type.responseSchemas();
    }

    private static ApiMessage message(String[] words) {
        ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(words[1]));
        return words[2].equals("request") ? type.newRequest() : type.newResponse();
    }

    private static ApiMessage read(String[] words, byte[] bytes) {
        ApiMessage message = message(words);
        ByteBufferAccessor accessor = new ByteBufferAccessor(ByteBuffer.wrap(bytes));
        message.read(accessor, Short.parseShort(words[3]));
        if (accessor.remaining() != 0)
            throw new IllegalArgumentException(accessor.remaining() + " bytes left");
        return message;
    }

    private static String write(ApiMessage message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return HEX.formatHex(buffer.array());
    }

    private static String json(ApiMessage message, short version) throws Exception {
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        Method write = converter.getMethod("write", message.getClass(), short.class, boolean.class);
        return write.invoke(null, message, version, false).toString();
    }

    // Fills the structs and arrays of structs that `schema`, the one of a version, has.
    private static void fill(Message message, Schema schema, boolean tagged) throws Exception {
        if (tagged)
            message.unknownTaggedFields().add(new RawTaggedField(77, new byte[0]));
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields tags)
                for (Field tag : tags.fields().values())
                    fillField(message, tag, true);
            else
                fillField(message, field.def, false);
        }
    }

    private static void fillField(Message message, Field def, boolean tagged) throws Exception {
        java.lang.reflect.Field field = message.getClass().getDeclaredField(camelCase(def.name));
        field.setAccessible(true);
        if (def.type instanceof Schema schema) {
            Message struct = (Message) field.getType().getConstructor().newInstance();
            fill(struct, schema, tagged);
            field.set(message, struct);
        } else if (def.type.isArray() && def.type.arrayElementType().get() instanceof Schema schema) {
            boolean isList = field.getType() == List.class;
            java.lang.reflect.Type generic = isList ? field.getGenericType() : field.getType().getGenericSuperclass();
            Class<?> itemClass = (Class<?>) ((ParameterizedType) generic).getActualTypeArguments()[0];
            Message item = (Message) itemClass.getConstructor().newInstance();
            fill(item, schema, false);
            @SuppressWarnings("unchecked")
            Collection<Message> items =
                isList ? new ArrayList<>() : (Collection<Message>) field.getType().getConstructor().newInstance();
            items.add(item);
            field.set(message, items);
        } else if (field.get(message) == null && !def.type.isNullable()) {
            field.set(message, MemoryRecords.EMPTY); // Records are null even where the wire has no null for them.
        }
    }

    private static String camelCase(String name) {
        StringBuilder text = new StringBuilder();
        for (String word : name.split("_"))
            text.append(text.length() == 0 ? word : Character.toUpperCase(word.charAt(0)) + word.substring(1));
        return text.toString();
    }

    private static byte[] make(Schema schema, Random random) {
        Object value = value(schema, random);
        ByteBuffer buffer = ByteBuffer.allocate(schema.sizeOf(value));
        schema.write(buffer, value);
        return buffer.array();
    }

    private static Object value(Type type, Random random) {
        boolean isNull = type.isNullable() && random.nextInt(4) == 0;
        if (isNull)
            return null;
        if (type instanceof Schema schema) {
            Struct struct = new Struct(schema);
            for (BoundField field : schema.fields())
                struct.set(field, value(field.def.type, random));
            return struct;
        }
        if (type instanceof TaggedFields tagged)
            return tags(tagged, random);
        if (type instanceof ArrayOf || type instanceof CompactArrayOf) {
            Object[] items = new Object[random.nextInt(4)];
            for (int i = 0; i < items.length; i++)
                items[i] = value(type.arrayElementType().get(), random);
            return items;
        }
        return scalar(((Type.DocumentedType) type).typeName(), random);
    }

    private static Map<Integer, Object> tags(TaggedFields type, Random random) {
        Map<Integer, Object> tags = new TreeMap<>();
        for (Map.Entry<Integer, Field> entry : type.fields().entrySet())
            if (random.nextInt(3) > 0)
                tags.put(entry.getKey(), value(entry.getValue().type, random));
        int[] unknown = {4, 77, 128, 20_000, Integer.MAX_VALUE - 1};
        for (int tag : unknown)
            if (random.nextInt(12) == 0)
                tags.put(tag, new RawTaggedField(tag, bytes(random)));
        return tags;
    }

    private static Object scalar(String name, Random random) {
        switch (name) {
            case "BOOLEAN": return random.nextBoolean();
            case "INT8": return (byte) random.nextInt();
            case "INT16": return (short) random.nextInt();
            case "UINT16": return random.nextInt(0x10000);
            case "INT32": return random.nextInt();
            case "INT64": return random.nextLong();
            case "UUID": return new Uuid(random.nextLong(), random.nextLong());
            case "BYTES": case "NULLABLE_BYTES": case "COMPACT_BYTES": case "COMPACT_NULLABLE_BYTES":
                return ByteBuffer.wrap(bytes(random));
            case "RECORDS": case "COMPACT_RECORDS": case "COMPACT_NULLABLE_RECORDS": case "NULLABLE_RECORDS":
                return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(random)));
            case "STRING": case "NULLABLE_STRING": case "COMPACT_STRING": case "COMPACT_NULLABLE_STRING":
                return "a\u00e9\u20ac\ud83d\ude00".repeat(random.nextInt(30)) + random.nextInt(10);
            default: throw new IllegalArgumentException("no type " + name);
        }
    }

    private static byte[] bytes(Random random) {
        byte[] bytes = new byte[random.nextInt(200)];
        random.nextBytes(bytes);
        return bytes;
    }
}
