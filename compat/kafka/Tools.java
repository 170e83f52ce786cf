import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.IntConsumer;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Apache Kafka's command-line tools one after the other in one virtual machine, whose start costs more than most
 * of them. Reads {"class", "args", "input"} and writes {"stdout", "stderr", "exit"}, one JSON object a line. A tool's
 * exit ends the tool only, and its shutdown hooks run then.
 */
public class Tools {
    /** What a tool's exit becomes. */
    private static final class Exited extends RuntimeException {
        Exited() {
            super(null, null, false, false);
        }
    }

    public static void main(String[] none) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = System.out;
        PrintStream late = new PrintStream(OutputStream.nullOutputStream());
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = json.readTree(line);
            List<String> args = new ArrayList<>();
            request.get("args").forEach(arg -> args.add(arg.asText()));
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(request.get("input").asText().getBytes(StandardCharsets.UTF_8)));
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            Map<String, Object> answer = new HashMap<>();
            IntConsumer end = code -> {
                answer.putIfAbsent("exit", code);
                answer.putIfAbsent("stdout", out.toString(StandardCharsets.UTF_8));
                answer.putIfAbsent("stderr", err.toString(StandardCharsets.UTF_8));
            };
            run(request.get("class").asText(), args.toArray(new String[0]), end);
            System.setOut(late); // what a tool's threads say after its end is nobody's answer
            System.setErr(late);
            answers.println(json.writeValueAsString(answer));
        }
    }

    /**
     * Runs a tool's main method and tells end its exit code when it exits, and once more when it has returned: what it
     * does after the first (it may take the exception that an exit becomes here for a failure) is not the tool any more.
     */
    private static void run(String name, String[] args, IntConsumer end) {
        List<Runnable> hooks = new ArrayList<>();
        Exit.setExitProcedure((code, message) -> {
            hooks.forEach(Runnable::run);
            hooks.clear();
            end.accept(code);
            throw new Exited();
        });
        Exit.setHaltProcedure((code, message) -> {
            hooks.forEach(Runnable::run);
            hooks.clear();
            end.accept(code);
            throw new Exited();
        });
        Exit.setShutdownHookAdder((hook, runnable) -> hooks.add(runnable));
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) args);
            hooks.forEach(Runnable::run);
            end.accept(0);
        } catch (InvocationTargetException e) {
            if (!(e.getCause() instanceof Exited)) {
                e.getCause().printStackTrace();
            }
            end.accept(1);
        } catch (ReflectiveOperationException e) {
            e.printStackTrace();
            end.accept(1);
        }
    }
}
