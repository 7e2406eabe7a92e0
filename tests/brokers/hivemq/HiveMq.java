import com.hivemq.embedded.EmbeddedExtension;
import com.hivemq.embedded.EmbeddedHiveMQ;
import com.hivemq.extension.sdk.api.ExtensionMain;
import com.hivemq.extension.sdk.api.auth.Authorizer;
import com.hivemq.extension.sdk.api.auth.EnhancedAuthenticator;
import com.hivemq.extension.sdk.api.auth.PublishAuthorizer;
import com.hivemq.extension.sdk.api.auth.SubscriptionAuthorizer;
import com.hivemq.extension.sdk.api.auth.parameter.EnhancedAuthConnectInput;
import com.hivemq.extension.sdk.api.auth.parameter.EnhancedAuthInput;
import com.hivemq.extension.sdk.api.auth.parameter.EnhancedAuthOutput;
import com.hivemq.extension.sdk.api.auth.parameter.PublishAuthorizerInput;
import com.hivemq.extension.sdk.api.auth.parameter.PublishAuthorizerOutput;
import com.hivemq.extension.sdk.api.auth.parameter.SubscriptionAuthorizerInput;
import com.hivemq.extension.sdk.api.auth.parameter.SubscriptionAuthorizerOutput;
import com.hivemq.extension.sdk.api.packets.connect.ConnectPacket;
import com.hivemq.extension.sdk.api.packets.general.DisconnectedReasonCode;
import com.hivemq.extension.sdk.api.packets.publish.AckReasonCode;
import com.hivemq.extension.sdk.api.packets.subscribe.SubackReasonCode;
import com.hivemq.extension.sdk.api.parameter.ExtensionStartInput;
import com.hivemq.extension.sdk.api.parameter.ExtensionStartOutput;
import com.hivemq.extension.sdk.api.parameter.ExtensionStopInput;
import com.hivemq.extension.sdk.api.parameter.ExtensionStopOutput;
import com.hivemq.extension.sdk.api.services.Services;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.HashMap;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * Runs the embedded broker until TERM. Arguments: the configuration, data and extension folders, and where
 * clients are to prove who they are a file of name:password lines. Then topics below "forbidden/" are
 * forbidden, and the method CHALLENGE of enhanced authentication is there: CONNECT with the name as data,
 * AUTH with a nonce, AUTH with HMAC-SHA256(password, nonce), CONNACK.
 */
public final class HiveMq {
    public static void main(String[] args) throws Exception {
        var builder = EmbeddedHiveMQ.builder()
            .withConfigurationFolder(Path.of(args[0])).withDataFolder(Path.of(args[1]))
            .withExtensionsFolder(Path.of(args[2]));
        if (args.length > 3) {
            builder = builder.withEmbeddedExtension(EmbeddedExtension.builder()
                .withId("users").withName("users").withVersion("1").withAuthor("tests").withPriority(0)
                .withStartPriority(0).withExtensionMain(new Users(read(Path.of(args[3])))).build());
        }
        EmbeddedHiveMQ broker = builder.build();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> broker.stop().join()));
        broker.start().join();
        System.out.println("ready");
        System.out.flush();
        Thread.currentThread().join();
    }

    private static Map<String, byte[]> read(Path file) throws Exception {
        var users = new HashMap<String, byte[]>();
        for (String line : Files.readAllLines(file)) {
            int colon = line.indexOf(':');
            if (colon > 0) {
                users.put(line.substring(0, colon), line.substring(colon + 1).getBytes(StandardCharsets.UTF_8));
            }
        }
        return users;
    }

    private static byte[] bytes(ByteBuffer buffer) {
        var copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return copy;
    }

    private record Users(Map<String, byte[]> passwords) implements ExtensionMain {
        @Override
        public void extensionStart(ExtensionStartInput input, ExtensionStartOutput output) {
            var registry = Services.securityRegistry();
            registry.setEnhancedAuthenticatorProvider(client -> new Challenge(passwords));
            Authorizer authorizer = new Topics();
            registry.setAuthorizerProvider(client -> authorizer);
        }

        @Override
        public void extensionStop(ExtensionStopInput input, ExtensionStopOutput output) {}
    }

    private static final class Topics implements PublishAuthorizer, SubscriptionAuthorizer {
        private static boolean forbidden(String topic) {
            return topic.startsWith("forbidden/");
        }

        @Override
        public void authorizePublish(PublishAuthorizerInput input, PublishAuthorizerOutput output) {
            if (forbidden(input.getPublishPacket().getTopic())) {
                output.failAuthorization(AckReasonCode.NOT_AUTHORIZED, "this topic is forbidden");
            } else {
                output.authorizeSuccessfully();
            }
        }

        @Override
        public void authorizeSubscribe(SubscriptionAuthorizerInput input, SubscriptionAuthorizerOutput output) {
            if (forbidden(input.getSubscription().getTopicFilter())) {
                output.failAuthorization(SubackReasonCode.NOT_AUTHORIZED, "this filter is forbidden");
            } else {
                output.authorizeSuccessfully();
            }
        }
    }

    /** One per client. */
    private static final class Challenge implements EnhancedAuthenticator {
        private static final SecureRandom RANDOM = new SecureRandom();
        private final Map<String, byte[]> passwords;
        private final byte[] nonce = new byte[16];
        private byte[] password;

        private Challenge(Map<String, byte[]> passwords) {
            this.passwords = passwords;
        }

        @Override
        public void onConnect(EnhancedAuthConnectInput input, EnhancedAuthOutput output) {
            var packet = input.getConnectPacket();
            String method = packet.getAuthenticationMethod().orElse("");
            if (method.equals("CHALLENGE")) {
                challenge(packet.getAuthenticationData().map(HiveMq::bytes).orElse(new byte[0]), output);
            } else if (!method.isEmpty()) {
                output.failAuthentication(DisconnectedReasonCode.BAD_AUTHENTICATION_METHOD);
            } else if (knows(packet)) {
                output.authenticateSuccessfully();
            } else {
                output.failAuthentication(DisconnectedReasonCode.BAD_USER_NAME_OR_PASSWORD);
            }
        }

        /** Without a method, name and password are asked for. */
        private boolean knows(ConnectPacket packet) {
            byte[] expected = passwords.get(packet.getUserName().orElse(""));
            byte[] given = packet.getPassword().map(HiveMq::bytes).orElse(new byte[0]);
            return expected != null && MessageDigest.isEqual(expected, given);
        }

        @Override
        public void onReAuth(EnhancedAuthInput input, EnhancedAuthOutput output) {
            challenge(input.getAuthPacket().getAuthenticationDataAsArray().orElse(new byte[0]), output);
        }

        private void challenge(byte[] name, EnhancedAuthOutput output) {
            password = passwords.get(new String(name, StandardCharsets.UTF_8));
            if (password == null) {
                output.failAuthentication(DisconnectedReasonCode.NOT_AUTHORIZED, "nobody is called that");
                return;
            }
            RANDOM.nextBytes(nonce);
            output.continueAuthentication(nonce);
        }

        @Override
        public void onAuth(EnhancedAuthInput input, EnhancedAuthOutput output) {
            byte[] answer = input.getAuthPacket().getAuthenticationDataAsArray().orElse(new byte[0]);
            try {
                var mac = Mac.getInstance("HmacSHA256");
                mac.init(new SecretKeySpec(password, "HmacSHA256"));
                if (MessageDigest.isEqual(mac.doFinal(nonce), answer)) {
                    output.authenticateSuccessfully("welcome".getBytes(StandardCharsets.UTF_8));
                    return;
                }
            } catch (java.security.GeneralSecurityException error) {
                throw new IllegalStateException(error);
            }
            output.failAuthentication(DisconnectedReasonCode.NOT_AUTHORIZED, "that is not the answer");
        }
    }
}
