import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.ConfigParser;
import io.kroxylicious.proxy.internal.config.Features;
import java.nio.file.Files;
import java.nio.file.Path;

/** Kroxylicious as its own program starts it: KroxyliciousServer CONFIGURATION_FILE. */
public final class KroxyliciousServer {
    public static void main(String[] arguments) throws Exception {
        ConfigParser parser = new ConfigParser();
        var configuration = parser.parseConfiguration(Files.readString(Path.of(arguments[0])));
        try (KafkaProxy proxy = new KafkaProxy(parser, configuration, Features.defaultFeatures())) {
            proxy.startup().block();
        }
    }
}
