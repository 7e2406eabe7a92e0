import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.inlong.tubemq.client.common.ConfirmResult;
import org.apache.inlong.tubemq.client.common.ConsumeResult;
import org.apache.inlong.tubemq.client.common.QueryMetaResult;
import org.apache.inlong.tubemq.client.config.ConsumerConfig;
import org.apache.inlong.tubemq.client.config.TubeClientConfig;
import org.apache.inlong.tubemq.client.consumer.ClientBalanceConsumer;
import org.apache.inlong.tubemq.client.consumer.ConsumeOffsetInfo;
import org.apache.inlong.tubemq.client.consumer.ConsumePosition;
import org.apache.inlong.tubemq.client.consumer.ConsumerResult;
import org.apache.inlong.tubemq.client.consumer.PullMessageConsumer;
import org.apache.inlong.tubemq.client.factory.TubeMultiSessionFactory;
import org.apache.inlong.tubemq.client.producer.MessageProducer;
import org.apache.inlong.tubemq.client.producer.MessageSentCallback;
import org.apache.inlong.tubemq.client.producer.MessageSentResult;
import org.apache.inlong.tubemq.corebase.Message;
import org.apache.inlong.tubemq.corebase.config.TLSConfig;
import org.apache.inlong.tubemq.corebase.rv.ProcessResult;
import org.apache.inlong.tubemq.corebase.utils.AddressUtils;

/**
 * The official Java client, driven from a test or a benchmark: each line of JSON on standard input is
 * [handle, verb, ...arguments], each is answered with {"ok": ...} or {"error": ...}. Bytes are hex. The verbs
 * "producer", "pull" (server balance) and "balance" (client balance) open a handle under the given name. The
 * end of standard input ends it.
 */
public final class Peer {
    private static final Gson GSON = new Gson();
    private static final HexFormat HEX = HexFormat.of();
    private static final Map<String, Handle> HANDLES = new HashMap<>();

    public static void main(String[] args) throws Exception {
        // What the client's libraries print is not to be taken for an answer.
        PrintStream answers = System.out;
        System.setOut(System.err);
        // The client looks for an address that is not the loopback's, which a machine need not have.
        Field own = AddressUtils.class.getDeclaredField("localIPAddress");
        own.setAccessible(true);
        own.set(null, "127.0.0.1");
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            var answer = new HashMap<String, Object>();
            try {
                answer.put("ok", run(JsonParser.parseString(line).getAsJsonArray()));
            } catch (Throwable error) {
                answer.put("error", error.toString());
            }
            answers.println(GSON.toJson(answer));
            answers.flush();
        }
        // Clients that were not closed are dropped as by a crash.
        Runtime.getRuntime().halt(0);
    }

    private static Object run(JsonArray words) throws Throwable {
        String name = words.get(0).getAsString();
        String verb = words.get(1).getAsString();
        switch (verb) {
            case "usage":
                return usage();
            case "producer":
                return open(name, new Producer(words.get(2).getAsJsonObject()));
            case "pull":
                return open(name, new Pull(words.get(2).getAsJsonObject()));
            case "balance":
                return open(name, new Balance(words.get(2).getAsJsonObject()));
            case "close":
                HANDLES.remove(name).close();
                return null;
            default:
                Handle handle = HANDLES.get(name);
                if (handle == null) {
                    throw new IllegalArgumentException("nothing is called " + name);
                }
                return handle.run(verb, words);
        }
    }

    private static Object open(String name, Handle handle) {
        HANDLES.put(name, handle);
        return null;
    }

    /** Processor seconds and resident bytes of this process. */
    private static Map<String, Object> usage() throws Exception {
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        var found = new TreeMap<String, Object>();
        found.put("cpu", system.getProcessCpuTime() / 1e9);
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                found.put("rss", 1024 * Long.parseLong(line.replaceAll("\\D", "")));
            }
        }
        return found;
    }

    private static String text(JsonObject options, String name, String otherwise) {
        return options.has(name) && !options.get(name).isJsonNull() ? options.get(name).getAsString() : otherwise;
    }

    private static long number(JsonObject options, String name, long otherwise) {
        return options.has(name) && !options.get(name).isJsonNull() ? options.get(name).getAsLong() : otherwise;
    }

    private static <T extends TubeClientConfig> T configured(T config, JsonObject options) throws Exception {
        config.setRpcTimeoutMs(60_000);
        config.setHeartbeatPeriodMs(number(options, "heartbeat_ms", 1000));
        config.setHeartbeatPeriodAfterFail(number(options, "heartbeat_ms", 1000));
        if (options.has("username")) {
            config.setAuthenticInfo(true, text(options, "username", ""), text(options, "password", ""));
        }
        if (options.has("trust_store")) {
            String password = text(options, "store_password", "changeit");
            config.setTLSEnableInfo(text(options, "trust_store", ""), password);
            if (options.has("key_store")) {
                // The client can do it, but has no setter for it.
                Field field = TubeClientConfig.class.getDeclaredField("tlsConfig");
                field.setAccessible(true);
                var tls = (TLSConfig) field.get(config);
                tls.setTlsTwoWayAuthEnable(true);
                tls.setTlsKeyStorePath(text(options, "key_store", ""));
                tls.setTlsKeyStorePassword(password);
            }
        }
        return config;
    }

    private static ConsumerConfig consumerConfig(JsonObject options) throws Exception {
        var config = new ConsumerConfig(text(options, "masters", ""), text(options, "group", ""));
        configured(config, options);
        switch (text(options, "position", "latest")) {
            case "first" -> config.setConsumePosition(ConsumePosition.CONSUMER_FROM_FIRST_OFFSET);
            case "max" -> config.setConsumePosition(ConsumePosition.CONSUMER_FROM_MAX_OFFSET_ALWAYS);
            default -> config.setConsumePosition(ConsumePosition.CONSUMER_FROM_LATEST_OFFSET);
        }
        config.setMsgNotFoundWaitPeriodMs(number(options, "not_found_ms", 20));
        config.setPullConsumeReadyWaitPeriodMs(number(options, "ready_wait_ms", 100));
        // At least 100 ms in the client.
        config.setPartMetaInfoCheckPeriodMs(number(options, "meta_ms", 1000));
        return config;
    }

    /** Topics with their filters: none is every message. */
    private static Map<String, TreeSet<String>> topics(JsonObject options) {
        var found = new TreeMap<String, TreeSet<String>>();
        for (var entry : options.getAsJsonObject("topics").entrySet()) {
            var filters = new TreeSet<String>();
            entry.getValue().getAsJsonArray().forEach(one -> filters.add(one.getAsString()));
            found.put(entry.getKey(), filters.isEmpty() ? null : filters);
        }
        return found;
    }

    private static Map<String, Long> offsets(JsonObject options) {
        var found = new TreeMap<String, Long>();
        if (options.has("offsets")) {
            options.getAsJsonObject("offsets").entrySet()
                .forEach(entry -> found.put(entry.getKey(), entry.getValue().getAsLong()));
        }
        return found;
    }

    private interface Handle {
        Object run(String verb, JsonArray words) throws Throwable;

        void close() throws Throwable;
    }

    // ------------------------------------------------------------------------------ producer

    private static final class Producer implements Handle {
        private final TubeMultiSessionFactory factory;
        private final MessageProducer producer;

        Producer(JsonObject options) throws Exception {
            factory = new TubeMultiSessionFactory(
                configured(new TubeClientConfig(text(options, "masters", "")), options));
            producer = factory.createProducer();
        }

        @Override
        public Object run(String verb, JsonArray words) throws Throwable {
            switch (verb) {
                case "publish":
                    var names = new TreeSet<String>();
                    words.get(2).getAsJsonArray().forEach(one -> names.add(one.getAsString()));
                    return producer.publish(names);
                case "accepts":
                    return producer.isTopicCurAcceptPublish(words.get(2).getAsString());
                case "send":
                    return told(producer.sendMessage(message(words, words.get(3))));
                case "send_all":
                    return sendAll(words);
                case "load":
                    return load(words.get(2).getAsString(), words.get(3).getAsJsonObject());
                default:
                    throw new IllegalArgumentException("a producer does not know " + verb);
            }
        }

        /** Of [handle, verb, topic, payload(s), {type, time, attributes}]. */
        private static Message message(JsonArray words, JsonElement payload) {
            var message = new Message(words.get(2).getAsString(), HEX.parseHex(payload.getAsString()));
            if (words.size() > 4) {
                JsonObject options = words.get(4).getAsJsonObject();
                if (options.has("type")) {
                    message.putSystemHeader(text(options, "type", null), text(options, "time", "202611211200"));
                }
                if (options.has("attributes")) {
                    for (var entry : options.getAsJsonObject("attributes").entrySet()) {
                        message.setAttrKeyVal(entry.getKey(), entry.getValue().getAsString());
                    }
                }
            }
            return message;
        }

        private static Map<String, Object> told(MessageSentResult result) {
            var found = new TreeMap<String, Object>();
            found.put("success", result.isSuccess());
            found.put("code", result.getErrCode());
            found.put("message", String.valueOf(result.getErrMsg()));
            found.put("message_id", result.getMessageId());
            found.put("time", result.getAppendTime());
            found.put("offset", result.getAppendOffset());
            if (result.getPartition() != null) {
                found.put("broker", result.getPartition().getBrokerId());
                found.put("partition", result.getPartition().getPartitionId());
            }
            return found;
        }

        /** Asynchronously, one behind the other; the results in the order they were sent. */
        private List<Object> sendAll(JsonArray words) throws Exception {
            var payloads = words.get(3).getAsJsonArray();
            var results = new Object[payloads.size()];
            var left = new CountDownLatch(results.length);
            for (int i = 0; i < results.length; i++) {
                int at = i;
                producer.sendMessage(message(words, payloads.get(i)), new MessageSentCallback() {
                    @Override
                    public void onMessageSent(MessageSentResult result) {
                        results[at] = told(result);
                        left.countDown();
                    }

                    @Override
                    public void onException(Throwable error) {
                        results[at] = Map.of("success", false, "code", -1, "message", error.toString());
                        left.countDown();
                    }
                });
            }
            if (!left.await(60, TimeUnit.SECONDS)) {
                throw new IllegalStateException(left.getCount() + " messages were not answered");
            }
            return List.of(results);
        }

        /**
         * For benchmarks: sends "count" messages of "size" bytes, at most "window" of them unanswered (1: the
         * synchronous call, one behind the other).
         */
        private Map<String, Object> load(String topic, JsonObject options) throws Exception {
            long count = number(options, "count", 10_000);
            int window = (int) number(options, "window", 1000);
            var body = new byte[(int) number(options, "size", 100)];
            java.util.Arrays.fill(body, (byte) 'x');
            var failed = new AtomicLong();
            var why = new AtomicReference<String>();
            var permits = new Semaphore(window);
            double before = (double) usage().get("cpu");
            long began = System.nanoTime();
            var callback = new MessageSentCallback() {
                @Override
                public void onMessageSent(MessageSentResult result) {
                    permits.release();
                    if (!result.isSuccess()) {
                        failed.incrementAndGet();
                        why.set(result.getErrCode() + " " + result.getErrMsg());
                    }
                }

                @Override
                public void onException(Throwable error) {
                    permits.release();
                    failed.incrementAndGet();
                    why.set(error.toString());
                }
            };
            for (long i = 0; i < count; i++) {
                var message = new Message(topic, body);
                if (window == 1) {
                    MessageSentResult result = producer.sendMessage(message);
                    if (!result.isSuccess()) {
                        failed.incrementAndGet();
                        why.set(result.getErrCode() + " " + result.getErrMsg());
                    }
                } else {
                    permits.acquire();
                    producer.sendMessage(message, callback);
                }
            }
            if (!permits.tryAcquire(window, 60, TimeUnit.SECONDS)) {
                throw new IllegalStateException("not all messages were answered");
            }
            Map<String, Object> found = usage();
            found.put("seconds", (System.nanoTime() - began) / 1e9);
            found.put("cpu", (double) found.get("cpu") - before);
            found.put("count", count);
            found.put("failed", failed.get());
            found.put("why", String.valueOf(why.get()));
            return found;
        }

        @Override
        public void close() throws Throwable {
            producer.shutdown();
            factory.shutdown();
        }
    }

    // ------------------------------------------------------------------------------ consumers

    /** What one fetch gave, the same for both kinds of consumer. */
    private record Pack(
        boolean success, int code, String words, String partition, long offset, long max, String context,
        List<Message> messages) {}

    private abstract static class Consumer implements Handle {
        protected final TubeMultiSessionFactory factory;

        // Not the single one, whose configuration is that of the first in the process.
        Consumer(ConsumerConfig config) throws Exception {
            factory = new TubeMultiSessionFactory(config);
        }

        abstract Pack fetch() throws Exception;

        /** The offset that is read next. */
        abstract Object confirm(String context, boolean consumed) throws Exception;

        abstract Object other(String verb, JsonArray words) throws Throwable;

        @Override
        public Object run(String verb, JsonArray words) throws Throwable {
            switch (verb) {
                case "receive":
                    return receive(words.get(2).getAsInt(), words.get(3).getAsLong(), words.get(4).getAsString());
                case "confirm":
                    return confirm(words.get(2).getAsString(), words.get(3).getAsBoolean());
                case "load":
                    return load(words.get(2).getAsJsonObject());
                default:
                    return other(verb, words);
            }
        }

        /**
         * Packs until that many messages came or the time (milliseconds) is over. "confirm": "yes", "no" (they
         * come again) or "later" (by the verb of that name).
         */
        private Map<String, Object> receive(int count, long timeout, String confirm) throws Exception {
            long deadline = System.nanoTime() + timeout * 1_000_000;
            var messages = new ArrayList<Object>();
            var packs = new ArrayList<Object>();
            String last = null;
            while (messages.size() < count && System.nanoTime() < deadline) {
                Pack pack = fetch();
                if (!pack.success) {
                    last = pack.code + " " + pack.words;
                    Thread.sleep(5);
                    continue;
                }
                var one = new TreeMap<String, Object>();
                one.put("partition", pack.partition);
                one.put("offset", pack.offset);
                one.put("max", pack.max);
                one.put("context", pack.context);
                one.put("count", pack.messages.size());
                for (Message message : pack.messages) {
                    var said = new TreeMap<String, Object>();
                    said.put("topic", message.getTopic());
                    said.put("data", HEX.formatHex(message.getData()));
                    said.put("type", message.getMsgType());
                    said.put("time", message.getMsgTime());
                    said.put("attributes", message.getAttribute());
                    said.put("message_id", message.getIndexId());
                    said.put("partition", pack.partition);
                    said.put("offset", pack.offset);
                    messages.add(said);
                }
                if (!confirm.equals("later")) {
                    one.put("confirmed", confirm(pack.context, confirm.equals("yes")));
                }
                packs.add(one);
            }
            var found = new TreeMap<String, Object>();
            found.put("messages", messages);
            found.put("packs", packs);
            found.put("last", last);
            return found;
        }

        /** For benchmarks: takes "count" messages and confirms each pack. */
        private Map<String, Object> load(JsonObject options) throws Exception {
            long count = number(options, "count", 10_000);
            long deadline = System.nanoTime() + number(options, "timeout_ms", 60_000) * 1_000_000;
            double before = (double) usage().get("cpu");
            long began = 0;
            long got = 0;
            long bytes = 0;
            while (got < count) {
                Pack pack = fetch();
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(got + " messages came in time");
                }
                if (!pack.success) {
                    continue;
                }
                if (began == 0) {
                    began = System.nanoTime();
                }
                got += pack.messages.size();
                for (Message message : pack.messages) {
                    bytes += message.getData().length;
                }
                confirm(pack.context, true);
            }
            Map<String, Object> found = usage();
            found.put("seconds", (System.nanoTime() - began) / 1e9);
            found.put("cpu", (double) found.get("cpu") - before);
            found.put("count", got);
            found.put("bytes", bytes);
            return found;
        }

        static Map<String, Object> told(Map<String, ConsumeOffsetInfo> partitions) {
            var found = new TreeMap<String, Object>();
            partitions.forEach((key, info) -> found.put(
                key, Map.of("offset", info.getCurrOffset(), "max", info.getMaxOffset())));
            return found;
        }
    }

    /** Server balance: the master says which partitions it gets. */
    private static final class Pull extends Consumer {
        private final PullMessageConsumer consumer;

        Pull(JsonObject options) throws Exception {
            super(consumerConfig(options));
            consumer = factory.createPullConsumer(consumerConfig(options));
            for (var topic : topics(options).entrySet()) {
                consumer.subscribe(topic.getKey(), topic.getValue());
            }
            if (options.has("session_key")) {
                consumer.completeSubscribe(text(options, "session_key", ""),
                    (int) number(options, "source_count", 1), true, offsets(options));
            } else {
                consumer.completeSubscribe();
            }
        }

        @Override
        Pack fetch() throws Exception {
            ConsumerResult result = consumer.getMessage();
            return new Pack(result.isSuccess(), result.getErrCode(), result.getErrMsg(), result.getPartitionKey(),
                result.getCurrOffset(), result.getMaxOffset(), result.getConfirmContext(), result.getMessageList());
        }

        @Override
        Object confirm(String context, boolean consumed) throws Exception {
            ConsumerResult result = consumer.confirmConsume(context, consumed);
            return result.isSuccess() ? result.getCurrOffset() : result.getErrCode() + " " + result.getErrMsg();
        }

        @Override
        Object other(String verb, JsonArray words) throws Throwable {
            switch (verb) {
                case "ready":
                    // isPartitionsReady of the client returns after its first look.
                    long deadline = System.nanoTime() + words.get(2).getAsLong() * 1_000_000;
                    while (consumer.getCurConsumedPartitions().isEmpty() && System.nanoTime() < deadline) {
                        Thread.sleep(10);
                    }
                    return !consumer.getCurConsumedPartitions().isEmpty();
                case "partitions":
                    return told(consumer.getCurConsumedPartitions());
                default:
                    throw new IllegalArgumentException("a pull consumer does not know " + verb);
            }
        }

        @Override
        public void close() throws Throwable {
            consumer.shutdown();
            factory.shutdown();
        }
    }

    /** Client balance: it connects to the partitions that it is told to, or to all of them. */
    private static final class Balance extends Consumer {
        private final ClientBalanceConsumer consumer;

        Balance(JsonObject options) throws Exception {
            super(consumerConfig(options));
            consumer = factory.createBalanceConsumer(consumerConfig(options));
            var result = new ProcessResult();
            if (!consumer.start(topics(options), (int) number(options, "source_count", -1),
                    (int) number(options, "node_id", -1), result)) {
                throw new IllegalStateException(result.getErrCode() + " " + result.getErrMsg());
            }
        }

        @Override
        Pack fetch() throws Exception {
            var result = new ConsumeResult();
            consumer.getMessage(result);
            return new Pack(result.isSuccess(), result.getErrCode(), result.getErrMsg(), result.getPartitionKey(),
                result.getCurrOffset(), result.getMaxOffset(), result.getConfirmContext(), result.getMessageList());
        }

        @Override
        Object confirm(String context, boolean consumed) throws Exception {
            var result = new ConfirmResult();
            consumer.confirmConsume(context, consumed, result);
            return result.isSuccess() ? result.getCurrOffset() : result.getErrCode() + " " + result.getErrMsg();
        }

        private Map<String, Boolean> meta() throws Exception {
            var result = new QueryMetaResult();
            if (!consumer.getPartitionMetaInfo(result)) {
                throw new IllegalStateException(result.getErrCode() + " " + result.getErrMsg());
            }
            return new TreeMap<>(result.getPartStatusMap());
        }

        private String connect(String partition, long offset) throws Exception {
            var result = new ProcessResult();
            boolean done = consumer.connect2Partition(partition, offset, result);
            return done ? "ok" : result.getErrCode() + " " + result.getErrMsg();
        }

        @Override
        Object other(String verb, JsonArray words) throws Throwable {
            switch (verb) {
                case "meta":
                    return meta();
                case "connect_all":
                    // With offsets by partition where they are given, else where the group is.
                    var found = new TreeMap<String, Object>();
                    var given = words.size() > 2 ? offsets(words.get(2).getAsJsonObject()) : Map.<String, Long>of();
                    for (var entry : meta().entrySet()) {
                        if (entry.getValue()) {
                            found.put(entry.getKey(), connect(entry.getKey(), given.getOrDefault(entry.getKey(), -1L)));
                        }
                    }
                    return found;
                case "connect":
                    return connect(words.get(2).getAsString(), words.get(3).getAsLong());
                case "disconnect":
                    var result = new ProcessResult();
                    boolean done = consumer.disconnectFromPartition(words.get(2).getAsString(), result);
                    return done ? "ok" : result.getErrCode() + " " + result.getErrMsg();
                case "partitions":
                    return told(consumer.getCurPartitionOffsetInfos());
                default:
                    throw new IllegalArgumentException("a balance consumer does not know " + verb);
            }
        }

        @Override
        public void close() throws Throwable {
            consumer.shutdown();
            factory.shutdown();
        }
    }
}
