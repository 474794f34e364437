import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs main classes of Kafka's command line tools one after the other in this JVM: its start takes longer than they do.
 * A line "class\targument\t..." is answered by "said\t" and the base64 of everything the tool printed.
 */
public final class ToolHost {
    /** Where a tool would end the JVM. */
    static final class Ended extends RuntimeException {
        Ended(int status, String message) {
            super("exit " + status + (message == null ? "" : ": " + message), null, false, false);
        }
    }

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status, message);
        });
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = commands.readLine()) != null; ) {
            String said = Base64.getEncoder().encodeToString(run(line.split("\t", -1)));
            answers.println("said\t" + said);
            answers.flush();
        }
    }

    private static byte[] run(String[] command) throws ReflectiveOperationException {
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        PrintStream out = new PrintStream(said, true, StandardCharsets.UTF_8);
        System.setOut(out);
        System.setErr(out);
        Object arguments = Arrays.copyOfRange(command, 1, command.length);
        try {
            Class.forName(command[0]).getMethod("main", String[].class).invoke(null, arguments);
        } catch (InvocationTargetException ended) {
            if (!(ended.getCause() instanceof Ended)) ended.getCause().printStackTrace(out);
        }
        out.flush();
        return said.toByteArray();
    }
}
