// Kafka's own authorizer as a referee: sets of ACLs and questions on standard input, one answer for
// each question on standard output. Compiled and run by tests/conformance/acl_referee.py.
//
// SET <allow everyone> / ACL <type> <name> <pattern> <principal> <host> <operation> <permission> /
// LOAD / ASK <principal> <host> <operation> <type> <name> / ANY <principal> <host> <op> <type>,
// separated by tabs.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class Referee {
    record Context(KafkaPrincipal principal, InetAddress clientAddress)
            implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "referee"; }
        public int correlationId() { return 0; }
    }

    static StandardAuthorizer authorizer(String everyone) throws Exception {
        StandardAuthorizer made = new StandardAuthorizer();
        Map<String, Object> configs = new HashMap<>();
        configs.put("node.id", "1");
        configs.put("super.users", "");
        configs.put("allow.everyone.if.no.acl.found", everyone);
        made.configure(configs);
        for (Method method : StandardAuthorizer.class.getMethods()) {
            if (method.getName().equals("withPluginMetrics")) {  // from 4.1 on
                Class<?> metrics =
                    Class.forName("org.apache.kafka.common.metrics.internals.PluginMetricsImpl");
                method.invoke(made, metrics.getConstructor(Metrics.class, Map.class)
                    .newInstance(new Metrics(), new LinkedHashMap<String, String>()));
            }
        }
        return made;
    }

    static Context context(String principal, String host) throws Exception {
        String[] parts = principal.split(":", 2);
        return new Context(new KafkaPrincipal(parts[0], parts[1]), InetAddress.getByName(host));
    }

    static String word(AuthorizationResult result) {
        return result == AuthorizationResult.ALLOWED ? "1" : "0";
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StandardAuthorizer authorizer = null;
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            switch (words[0]) {
                case "SET" -> {
                    authorizer = authorizer(words[1]);
                    acls = new HashMap<>();
                }
                case "ACL" -> acls.put(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.valueOf(words[1]), words[2], PatternType.valueOf(words[3]),
                    words[4], words[5], AclOperation.valueOf(words[6]),
                    AclPermissionType.valueOf(words[7])));
                case "LOAD" -> {
                    authorizer.loadSnapshot(acls);
                    authorizer.completeInitialLoad();
                }
                case "ASK" -> out.append(word(authorizer.authorize(context(words[1], words[2]),
                    List.of(new Action(AclOperation.valueOf(words[3]), new ResourcePattern(
                        ResourceType.valueOf(words[4]), words[5], PatternType.LITERAL), 1, true,
                        true))).get(0))).append('\n');
                case "ANY" -> out.append(word(authorizer.authorizeByResourceType(
                    context(words[1], words[2]), AclOperation.valueOf(words[3]),
                    ResourceType.valueOf(words[4])))).append('\n');
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.out.print(out);
    }
}
