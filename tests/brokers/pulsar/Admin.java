import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaInfoWithVersion;
import org.apache.pulsar.common.schema.SchemaType;
import org.apache.pulsar.common.util.ObjectMapperFactory;

/**
 * The official Java client of Pulsar's administration, driven from a test: each line of JSON on standard input is
 * [url of the web service, "group.method", ...arguments], such as [url, "topics.createSubscription", "orders", "s",
 * "earliest"], and names a method of a group of PulsarAdmin. Each is answered with {"ok": {"answer": ...}}, with {"ok":
 * {"exception": class, "status": of HTTP}} if the client threw, and with {"error": ...} if there is no such method.
 * A message id is "earliest", "latest" or [ledger, entry]. The end of standard input ends it.
 */
public final class Admin {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, PulsarAdmin> CLIENTS = new HashMap<>();

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
                answer.put("error", error.toString());
            }
            answers.println(JSON.writeValueAsString(answer));
        }
        Runtime.getRuntime().halt(0);
    }

    /** Reads and writes the values of the administration. It logs when it is loaded, so not before main begins. */
    private static ObjectMapper values() {
        return ObjectMapperFactory.getMapper().getObjectMapper();
    }

    private static Map<String, Object> run(JsonNode words) throws Exception {
        String[] name = words.get(1).asText().split("\\.");
        Method group = PulsarAdmin.class.getMethod(name[0]);
        Object target = group.invoke(client(words.get(0).asText()));
        var result = new HashMap<String, Object>();
        for (Method method : group.getReturnType().getMethods()) {
            if (!method.getName().equals(name[1]) || method.getParameterCount() != words.size() - 2) {
                continue;
            }
            Class<?>[] types = method.getParameterTypes();
            var arguments = new Object[types.length];
            boolean fits = true;
            for (int i = 0; i < types.length && fits; i++) {
                arguments[i] = argument(types[i], words.get(i + 2));
                fits = arguments[i] != null;
            }
            if (!fits) {
                continue;
            }
            try {
                result.put("answer", shown(method.invoke(target, arguments)));
            } catch (InvocationTargetException error) {
                Throwable thrown = error.getCause();
                result.put("exception", thrown.getClass().getSimpleName());
                if (thrown instanceof PulsarAdminException refused) {
                    result.put("status", refused.getStatusCode());
                    result.put("reason", refused.getHttpError());
                } else {
                    result.put("reason", thrown.getMessage());
                }
            }
            return result;
        }
        throw new NoSuchMethodException(words.toString());
    }

    private static PulsarAdmin client(String url) throws Exception {
        PulsarAdmin client = CLIENTS.get(url);
        if (client == null) {
            client = PulsarAdmin.builder().serviceHttpUrl(url).readTimeout(120, TimeUnit.SECONDS)
                .requestTimeout(120, TimeUnit.SECONDS).build();
            CLIENTS.put(url, client);
        }
        return client;
    }

    /** The argument of a type, or null if the JSON is of another one. */
    private static Object argument(Class<?> type, JsonNode json) throws Exception {
        if (type == String.class) {
            return json.isTextual() ? json.asText() : null;
        } else if (type == int.class) {
            return json.isInt() ? json.asInt() : null;
        } else if (type == long.class) {
            return json.isIntegralNumber() ? json.asLong() : null;
        } else if (type == boolean.class) {
            return json.isBoolean() ? json.asBoolean() : null;
        } else if (type == MessageId.class) {
            switch (json.asText()) {
                case "earliest":
                    return MessageId.earliest;
                case "latest":
                    return MessageId.latest;
                default:
                    return json.isArray()
                        ? new MessageIdImpl(json.get(0).asLong(), json.get(1).asLong(), -1) : null;
            }
        } else if (type == SchemaInfo.class) {
            return json.isObject() ? schema(json) : null;
        } else if (json.isObject() && type.getSimpleName().equals(json.path("class").asText())) {
            return values().treeToValue(json.get("value"), type);
        }
        return null;
    }

    private static SchemaInfo schema(JsonNode json) {
        var properties = new TreeMap<String, String>();
        json.path("properties").fields().forEachRemaining(one -> properties.put(one.getKey(), one.getValue().asText()));
        return SchemaInfo.builder().name("").type(SchemaType.valueOf(json.get("type").asText()))
            .schema(json.get("schema").asText().getBytes(StandardCharsets.UTF_8)).properties(properties).build();
    }

    // ------------------------------------------------------------------------------ answers as JSON

    private static Object shown(Object value) {
        if (value instanceof Message<?> message) {
            return shownMessage(message);
        } else if (value instanceof MessageIdAdv id) {
            return shownId(id);
        } else if (value instanceof SchemaInfo info) {
            return shownSchema(info);
        } else if (value instanceof SchemaInfoWithVersion info) {
            return Map.of("version", info.getVersion(), "schema", shownSchema(info.getSchemaInfo()));
        } else if (value instanceof Map<?, ?> map) {
            var all = new TreeMap<String, Object>();
            map.forEach((key, one) -> all.put(key.toString(), shown(one)));
            return all;
        } else if (value instanceof Collection<?> many) {
            List<Object> all = new ArrayList<>();
            many.forEach(one -> all.add(shown(one)));
            return all;
        }
        return values().valueToTree(value);
    }

    private static Object shownId(MessageIdAdv id) {
        var all = new HashMap<String, Object>();
        all.put("class", id.getClass().getSimpleName());
        all.put("ledgerId", id.getLedgerId());
        all.put("entryId", id.getEntryId());
        all.put("partition", id.getPartitionIndex());
        all.put("batchIndex", id.getBatchIndex());
        all.put("batchSize", id.getBatchSize());
        return all;
    }

    private static Object shownMessage(Message<?> message) {
        var all = new HashMap<String, Object>();
        all.put("id", shownId((MessageIdAdv) message.getMessageId()));
        all.put("data", new String(message.getData(), StandardCharsets.UTF_8));
        all.put("key", message.getKey());
        all.put("properties", message.getProperties());
        all.put("eventTime", message.getEventTime());
        all.put("published", message.getPublishTime() > 0);
        all.put("producer", message.getProducerName());
        all.put("sequence", message.getSequenceId());
        all.put("topic", message.getTopicName());
        all.put("schemaVersion", message.getSchemaVersion());
        return all;
    }

    private static Object shownSchema(SchemaInfo info) {
        var all = new HashMap<String, Object>();
        all.put("name", info.getName());
        all.put("type", info.getType());
        all.put("schema", new String(info.getSchema(), StandardCharsets.UTF_8));
        all.put("properties", info.getProperties());
        return all;
    }
}
