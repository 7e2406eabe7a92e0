import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.DescriptorProtos.UninterpretedOption;
import com.google.protobuf.Struct;
import com.google.protobuf.util.JsonFormat;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.schema.GenericObject;
import org.apache.pulsar.client.impl.PulsarClientImpl;
import org.apache.pulsar.client.impl.schema.AutoProduceBytesSchema;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;
import org.apache.pulsar.common.schema.SchemaInfo;

/**
 * The official Java client, driven from a test: each line of JSON on standard input is [handle, verb,
 * ...arguments], each is answered with {"ok": ...} or {"error": ...}. Bytes are base64. The verbs "producer",
 * "consumer", "reader" and "view" open a handle under the given name; their options are "url", "topic",
 * "schema" (see kind), "conf" (the client's configuration, by the names of its fields) and those that are read
 * below. The end of standard input ends it.
 */
public final class Peer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, PulsarClient> CLIENTS = new HashMap<>();
    private static final Map<String, Handle> HANDLES = new HashMap<>();

    public static void main(String[] args) throws Exception {
        // What the client's libraries print is not to be taken for an answer.
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            var answer = new HashMap<String, Object>();
            try {
                answer.put("ok", run(JSON.readTree(line)));
            } catch (Throwable error) {
                Throwable why = error;
                while ((why instanceof ExecutionException || why instanceof CompletionException)
                        && why.getCause() != null) {
                    why = why.getCause();
                }
                answer.put("error", why.getClass().getSimpleName() + ": " + why.getMessage());
            }
            answers.println(JSON.writeValueAsString(answer));
        }
        // Clients that were not closed are dropped as by a crash.
        Runtime.getRuntime().halt(0);
    }

    private static Object run(JsonNode words) throws Exception {
        String name = words.get(0).asText();
        String verb = words.get(1).asText();
        switch (verb) {
            case "producer":
                return open(name, new Producer(words.get(2)));
            case "consumer":
                return open(name, new Consumer(words.get(2)));
            case "reader":
                return open(name, new Reader(words.get(2)));
            case "view":
                return open(name, new View(words.get(2)));
            case "schema":
                return stored(words.get(2));
            case "partitions":
                return client(words.get(2)).getPartitionsForTopic(words.get(2).get("topic").asText()).get();
            case "close":
                HANDLES.remove(name).close();
                return null;
            default:
                return HANDLES.get(name).run(verb, words);
        }
    }

    private static Object open(String name, Handle handle) {
        HANDLES.put(name, handle);
        return null;
    }

    /** For benchmarks: seconds, CPU seconds and resident bytes of "count" messages since the given moments. */
    private static Map<String, Object> measured(long count, long began, double cpu) throws Exception {
        var found = new TreeMap<String, Object>();
        found.put("seconds", (System.nanoTime() - began) / 1e9);
        found.put("cpu", cpu() - cpu);
        found.put("count", count);
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                found.put("rss", 1024 * Long.parseLong(line.replaceAll("\\D", "")));
            }
        }
        return found;
    }

    /** CPU seconds of this process so far. */
    private static double cpu() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }

    private interface Handle {
        Object run(String verb, JsonNode words) throws Exception;

        void close() throws Exception;
    }

    private static PulsarClient client(JsonNode options) throws Exception {
        String url = options.get("url").asText();
        PulsarClient client = CLIENTS.get(url);
        if (client == null) {
            client = PulsarClient.builder().serviceUrl(url).operationTimeout(60, TimeUnit.SECONDS)
                .statsInterval(0, TimeUnit.SECONDS).build();
            CLIENTS.put(url, client);
        }
        return client;
    }

    private static Map<String, Object> conf(JsonNode options) {
        return JSON.convertValue(options.path("conf"), new TypeReference<Map<String, Object>>() {});
    }

    private static byte[] bytes(JsonNode text) throws Exception {
        return text == null || text.isNull() ? null : text.binaryValue();
    }

    /** The schema that the broker has, of a version or the latest. */
    private static Object stored(JsonNode options) throws Exception {
        var lookup = ((PulsarClientImpl) client(options)).getLookup();
        byte[] version = bytes(options.get("version"));
        TopicName topic = TopicName.get(options.get("topic").asText());
        SchemaInfo info = (version == null ? lookup.getSchema(topic) : lookup.getSchema(topic, version)).get()
            .orElseThrow();
        return List.of(info.getType().toString(), info.getName(), info.getSchema(), info.getProperties());
    }

    // ------------------------------------------------------------------------------ values

    private interface Reads {
        Object read(JsonNode json) throws Exception;
    }

    private interface Shows {
        Object show(Object value) throws Exception;
    }

    /** A schema, and its values as JSON. */
    private record Kind(Schema<Object> schema, Reads reads, Shows shows) {
        Object read(JsonNode json) throws Exception {
            return json == null || json.isNull() ? null : reads.read(json);
        }

        Object show(Object value) throws Exception {
            return value == null ? null : shows.show(value);
        }
    }

    @SuppressWarnings("unchecked")
    private static Kind kind(Schema<?> schema, Reads reads, Shows shows) {
        return new Kind((Schema<Object>) schema, reads, shows);
    }

    private static Kind kind(Schema<?> schema, Function<String, Object> parse) {
        return kind(schema, json -> parse.apply(json.asText()), Object::toString);
    }

    private static Kind kind(Schema<?> schema, Class<?> of) {
        return kind(schema, json -> JSON.treeToValue(json, of), value -> value);
    }

    /** "string", "avro" ..., or of pairs: "inline:KEY:VALUE", "separated:KEY:VALUE". */
    private static Kind kind(String name) {
        String[] parts = name.split(":");
        switch (parts[0]) {
            case "bytes":
                return kind(Schema.BYTES, JsonNode::binaryValue, value -> value);
            case "string":
                return kind(Schema.STRING, String.class);
            case "boolean":
                return kind(Schema.BOOL, Boolean.class);
            case "int8":
                return kind(Schema.INT8, Byte.class);
            case "int16":
                return kind(Schema.INT16, Short.class);
            case "int32":
                return kind(Schema.INT32, Integer.class);
            case "int64":
                return kind(Schema.INT64, Long.class);
            case "float":
                return kind(Schema.FLOAT, Float.class);
            case "double":
                return kind(Schema.DOUBLE, Double.class);
            case "instant":
                return kind(Schema.INSTANT, Instant::parse);
            case "local_date":
                return kind(Schema.LOCAL_DATE, LocalDate::parse);
            case "local_time":
                return kind(Schema.LOCAL_TIME, LocalTime::parse);
            case "local_date_time":
                return kind(Schema.LOCAL_DATE_TIME, LocalDateTime::parse);
            case "json":
                return kind(Schema.JSON(Item.class), Item.class);
            case "avro":
                return kind(Schema.AVRO(Item.class), Item.class);
            case "protobuf":
                return kind(Schema.PROTOBUF(Struct.class), Peer::struct, Peer::shown);
            case "protobuf2":
                // For what the broker stores.
                return kind(Schema.PROTOBUF(UninterpretedOption.class), json -> null, value -> null);
            case "protobuf_native":
                return kind(Schema.PROTOBUF_NATIVE(Struct.class), Peer::struct, Peer::shown);
            case "auto":
                return kind(Schema.AUTO_CONSUME(), json -> null, Peer::shown);
            case "auto_produce":
                return kind(new AutoProduceBytesSchema<>(), JsonNode::binaryValue, value -> value);
            case "inline":
            case "separated":
                Kind first = kind(parts[1]);
                Kind second = kind(parts[2]);
                return kind(
                    Schema.KeyValue(first.schema, second.schema, KeyValueEncodingType.valueOf(parts[0].toUpperCase())),
                    json -> new KeyValue<>(first.read(json.get(0)), second.read(json.get(1))),
                    value -> Arrays.asList(
                        first.show(((KeyValue<?, ?>) value).getKey()), second.show(((KeyValue<?, ?>) value).getValue())));
            default:
                throw new IllegalArgumentException("there is no schema " + name);
        }
    }

    private static Object struct(JsonNode json) throws Exception {
        var builder = Struct.newBuilder();
        JsonFormat.parser().merge(json.toString(), builder);
        return builder.build();
    }

    /** A value of a schema that this program does not choose. */
    private static Object shown(Object value) throws Exception {
        if (value instanceof GenericObject found) {
            return shown(found.getNativeObject());
        } else if (value instanceof KeyValue<?, ?> pair) {
            return Arrays.asList(shown(pair.getKey()), shown(pair.getValue()));
        } else if (value instanceof Struct message) {
            return JSON.readTree(JsonFormat.printer().print(message));
        } else if (value instanceof org.apache.avro.generic.GenericRecord) {
            return JSON.readTree(value.toString());
        }
        return value;
    }

    // ------------------------------------------------------------------------------ messages

    private static Map<String, Object> shown(Message<Object> message, Kind kind) throws Exception {
        var said = new TreeMap<String, Object>();
        said.put("data", message.getData());
        said.put("value", kind.show(message.getValue()));
        said.put("key", message.getKey());
        said.put("ordering_key", message.hasOrderingKey() ? message.getOrderingKey() : null);
        said.put("properties", message.getProperties());
        said.put("event_time", message.getEventTime());
        said.put("sequence_id", message.getSequenceId());
        said.put("schema_version", message.getSchemaVersion());
        said.put("producer", message.getProducerName());
        said.put("redelivery_count", message.getRedeliveryCount());
        said.put("topic", message.getTopicName());
        said.put("id", shown(message.getMessageId()));
        said.put("id_bytes", message.getMessageId().toByteArray());
        return said;
    }

    private static List<Number> shown(MessageId id) {
        var place = (MessageIdAdv) id;
        return List.of(place.getLedgerId(), place.getEntryId(), place.getPartitionIndex(), place.getBatchIndex());
    }

    private static final class Producer implements Handle {
        private final Kind kind;
        private final CompletableFuture<org.apache.pulsar.client.api.Producer<Object>> opening;

        /** With "later" the handle is there at once, and "opened" waits for the broker. */
        Producer(JsonNode options) throws Exception {
            kind = kind(options.path("schema").asText("bytes"));
            var builder = client(options).newProducer(kind.schema).loadConf(conf(options))
                .topic(options.get("topic").asText());
            if (options.path("key_based").asBoolean()) {
                builder.batcherBuilder(BatcherBuilder.KEY_BASED);
            }
            if (options.has("update_seconds")) {
                builder.autoUpdatePartitionsInterval(options.get("update_seconds").asInt(), TimeUnit.SECONDS);
            }
            opening = builder.createAsync();
            if (!options.path("later").asBoolean()) {
                opening.get();
            }
        }

        @Override
        public Object run(String verb, JsonNode words) throws Exception {
            if (verb.equals("opened")) {
                try {
                    opening.get(words.get(2).asLong(), TimeUnit.MILLISECONDS);
                } catch (java.util.concurrent.TimeoutException notYet) {
                    return false;
                }
                return true;
            }
            var producer = opening.get();
            switch (verb) {
                case "send":
                    var sent = new ArrayList<CompletableFuture<MessageId>>();
                    for (JsonNode message : words.get(2)) {
                        sent.add(message(producer, message).sendAsync());
                    }
                    producer.flushAsync();
                    var ids = new ArrayList<Object>();
                    for (var id : sent) {
                        ids.add(shown(id.get()));
                    }
                    return ids;
                case "last_sequence_id":
                    return producer.getLastSequenceId();
                case "is_connected":
                    return producer.isConnected();
                case "number_of_partitions":
                    return producer.getNumOfPartitions();
                case "load":
                    return load(producer, words.get(2));
                default:
                    throw new IllegalArgumentException("a producer does not know " + verb);
            }
        }

        /**
         * For benchmarks: sends "count" messages of "size" bytes, at most "window" of them unanswered (1: the
         * synchronous call, one behind the other, with "p50", the median in seconds).
         */
        private static Map<String, Object> load(
                org.apache.pulsar.client.api.Producer<Object> producer, JsonNode options) throws Exception {
            int count = options.get("count").asInt();
            int window = options.get("window").asInt();
            var body = new byte[options.get("size").asInt()];
            var taken = new long[count];
            var why = new AtomicReference<Throwable>();
            var permits = new Semaphore(window);
            double cpu = cpu();
            long began = System.nanoTime();
            for (int i = 0; i < count; i++) {
                if (window == 1) {
                    long before = System.nanoTime();
                    producer.send(body);
                    taken[i] = System.nanoTime() - before;
                } else {
                    permits.acquire();
                    producer.sendAsync(body).whenComplete((id, error) -> {
                        if (error != null) {
                            why.set(error);
                        }
                        permits.release();
                    });
                }
            }
            if (!permits.tryAcquire(window, 60, TimeUnit.SECONDS)) {
                throw new IllegalStateException("not all messages were answered");
            }
            if (why.get() != null) {
                throw new ExecutionException(why.get());
            }
            var found = measured(count, began, cpu);
            if (window == 1) {
                Arrays.sort(taken);
                found.put("p50", taken[count / 2] / 1e9);
            }
            return found;
        }

        private TypedMessageBuilder<Object> message(
                org.apache.pulsar.client.api.Producer<Object> producer, JsonNode given) throws Exception {
            Kind of = given.has("schema") ? kind(given.get("schema").asText()) : kind;
            var message = given.has("schema") ? producer.newMessage(of.schema) : producer.newMessage();
            message.value(of.read(given.get("value")));
            if (given.has("key")) {
                message.key(given.get("key").asText());
            }
            if (given.has("key_bytes")) {
                message.keyBytes(bytes(given.get("key_bytes")));
            }
            if (given.has("ordering_key")) {
                message.orderingKey(bytes(given.get("ordering_key")));
            }
            given.path("properties").fields().forEachRemaining(
                one -> message.property(one.getKey(), one.getValue().asText()));
            if (given.has("event_time")) {
                message.eventTime(given.get("event_time").asLong());
            }
            if (given.has("sequence_id")) {
                message.sequenceId(given.get("sequence_id").asLong());
            }
            if (given.has("deliver_after")) {
                message.deliverAfter(given.get("deliver_after").asLong(), TimeUnit.MILLISECONDS);
            }
            return message;
        }

        @Override
        public void close() throws Exception {
            if (opening.cancel(true) || opening.isCompletedExceptionally()) {
                return;
            }
            opening.get().close();
        }
    }

    private static final class Consumer implements Handle, ConsumerEventListener {
        private final Kind kind;
        private final org.apache.pulsar.client.api.Consumer<Object> consumer;
        /** By the numbers under which they are acknowledged. */
        private final List<Message<Object>> received = new ArrayList<>();
        private final List<String> events = new ArrayList<>();

        Consumer(JsonNode options) throws Exception {
            kind = kind(options.path("schema").asText("bytes"));
            var builder = client(options).newConsumer(kind.schema).loadConf(conf(options));
            if (options.path("events").asBoolean()) {
                builder.consumerEventListener(this);
            }
            if (options.has("pattern")) {
                builder.topicsPattern(Pattern.compile(options.get("pattern").asText()));
            } else {
                for (JsonNode topic : options.get("topic").isArray() ? options.get("topic") : List.of(options.get("topic"))) {
                    builder.topic(topic.asText());
                }
            }
            policies(builder, options);
            consumer = builder.subscribe();
        }

        private static void policies(ConsumerBuilder<Object> builder, JsonNode options) {
            if (options.has("update_seconds")) {
                builder.autoUpdatePartitionsInterval(options.get("update_seconds").asInt(), TimeUnit.SECONDS);
            }
            if (options.has("dead_letter")) {
                JsonNode given = options.get("dead_letter");
                builder.deadLetterPolicy(DeadLetterPolicy.builder()
                    .maxRedeliverCount(given.get("max").asInt())
                    .deadLetterTopic(given.path("topic").asText(null))
                    .retryLetterTopic(given.path("retry_topic").asText(null))
                    .initialSubscriptionName(given.path("subscription").asText(null)).build());
            }
            if (options.has("ranges")) {
                var ranges = new ArrayList<Range>();
                options.get("ranges").forEach(
                    range -> ranges.add(Range.of(range.get(0).asInt(), range.get(1).asInt())));
                builder.keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(ranges));
            }
            if (options.has("out_of_order")) {
                var policy = KeySharedPolicy.autoSplitHashRange();
                policy.setAllowOutOfOrderDelivery(options.get("out_of_order").asBoolean());
                builder.keySharedPolicy(policy);
            }
        }

        @Override
        public synchronized void becameActive(org.apache.pulsar.client.api.Consumer<?> consumer, int partition) {
            events.add("active " + partition);
        }

        @Override
        public synchronized void becameInactive(org.apache.pulsar.client.api.Consumer<?> consumer, int partition) {
            events.add("inactive " + partition);
        }

        @Override
        public Object run(String verb, JsonNode words) throws Exception {
            switch (verb) {
                case "receive":
                    // Fewer, if the time (milliseconds) is over.
                    long deadline = System.nanoTime() + words.get(3).asLong() * 1_000_000;
                    var found = new ArrayList<Object>();
                    while (found.size() < words.get(2).asInt()) {
                        long left = Math.max(deadline - System.nanoTime(), 0) / 1_000_000;
                        Message<Object> message = consumer.receive((int) left, TimeUnit.MILLISECONDS);
                        if (message == null) {
                            break;
                        }
                        var said = shown(message, kind);
                        said.put("number", received.size());
                        received.add(message);
                        found.add(said);
                    }
                    return found;
                case "ack":
                    consumer.acknowledge(message(words));
                    return null;
                case "ack_cumulative":
                    consumer.acknowledgeCumulative(message(words));
                    return null;
                case "nack":
                    consumer.negativeAcknowledge(message(words));
                    return null;
                case "reconsume_later":
                    var properties = new HashMap<String, String>();
                    words.get(4).fields().forEachRemaining(
                        one -> properties.put(one.getKey(), one.getValue().asText()));
                    consumer.reconsumeLater(message(words), properties, words.get(3).asLong(), TimeUnit.MILLISECONDS);
                    return null;
                case "redeliver":
                    consumer.redeliverUnacknowledgedMessages();
                    return null;
                case "seek":
                    consumer.seek(MessageId.fromByteArray(bytes(words.get(2))));
                    return null;
                case "seek_time":
                    consumer.seek(words.get(2).asLong());
                    return null;
                case "unsubscribe":
                    consumer.unsubscribe(words.get(2).asBoolean());
                    return null;
                case "events":
                    synchronized (this) {
                        return new ArrayList<>(events);
                    }
                case "reached_end":
                    return consumer.hasReachedEndOfTopic();
                case "load":
                    return load(words.get(2));
                case "last_ids":
                    var ids = new TreeMap<String, Object>();
                    consumer.getLastMessageIds().forEach(id -> ids.put(id.getOwnerTopic(), shown(id)));
                    return ids;
                default:
                    throw new IllegalArgumentException("a consumer does not know " + verb);
            }
        }

        /** For benchmarks: receives and acknowledges one message, and then "count" more, which are measured. */
        private Map<String, Object> load(JsonNode options) throws Exception {
            int count = options.get("count").asInt();
            long began = 0;
            double cpu = 0;
            for (int i = -1; i < count; i++) {
                Message<Object> message = consumer.receive(60, TimeUnit.SECONDS);
                if (message == null) {
                    throw new IllegalStateException(i + 1 + " messages came in time");
                }
                consumer.acknowledge(message);
                if (i < 0) {
                    began = System.nanoTime();
                    cpu = cpu();
                }
            }
            return measured(count, began, cpu);
        }

        private Message<Object> message(JsonNode words) {
            return received.get(words.get(2).asInt());
        }

        @Override
        public void close() throws Exception {
            consumer.close();
        }
    }

    private static final class Reader implements Handle {
        private final Kind kind;
        private final org.apache.pulsar.client.api.Reader<Object> reader;

        /** "start" is "earliest", "latest" or the bytes of an id, "inclusive" with its message. */
        Reader(JsonNode options) throws Exception {
            kind = kind(options.path("schema").asText("bytes"));
            String start = options.path("start").asText("earliest");
            var builder = client(options).newReader(kind.schema).loadConf(conf(options))
                .topic(options.get("topic").asText())
                .startMessageId(start.equals("earliest") ? MessageId.earliest
                    : start.equals("latest") ? MessageId.latest : MessageId.fromByteArray(bytes(options.get("start"))));
            if (options.path("inclusive").asBoolean()) {
                builder.startMessageIdInclusive();
            }
            reader = builder.create();
        }

        @Override
        public Object run(String verb, JsonNode words) throws Exception {
            switch (verb) {
                case "receive":
                    long deadline = System.nanoTime() + words.get(3).asLong() * 1_000_000;
                    var found = new ArrayList<Object>();
                    while (found.size() < words.get(2).asInt()) {
                        long left = Math.max(deadline - System.nanoTime(), 0) / 1_000_000;
                        Message<Object> message = reader.readNext((int) left, TimeUnit.MILLISECONDS);
                        if (message == null) {
                            break;
                        }
                        found.add(shown(message, kind));
                    }
                    return found;
                case "available":
                    return reader.hasMessageAvailable();
                case "reached_end":
                    return reader.hasReachedEndOfTopic();
                case "seek":
                    reader.seek(MessageId.fromByteArray(bytes(words.get(2))));
                    return null;
                case "seek_time":
                    reader.seek(words.get(2).asLong());
                    return null;
                default:
                    throw new IllegalArgumentException("a reader does not know " + verb);
            }
        }

        @Override
        public void close() throws Exception {
            reader.close();
        }
    }

    private static final class View implements Handle {
        private final Kind kind;
        private final org.apache.pulsar.client.api.TableView<Object> view;

        View(JsonNode options) throws Exception {
            kind = kind(options.path("schema").asText("bytes"));
            view = client(options).newTableView(kind.schema).topic(options.get("topic").asText()).create();
        }

        @Override
        public Object run(String verb, JsonNode words) throws Exception {
            view.refresh();
            var found = new TreeMap<String, Object>();
            for (var entry : view.entrySet()) {
                found.put(entry.getKey(), kind.show(entry.getValue()));
            }
            return found;
        }

        @Override
        public void close() throws Exception {
            view.close();
        }
    }
}
