import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * Gives Apache RocketMQ's own verdict on filters, one per line of standard input.
 *
 * <p>A line is tab-separated hex of UTF-8 text: the filter, then name and value of each property.
 * The answer is one word: true, false, null, error (evaluation raised) or parse (not compiled).
 */
public class FilterVerdicts {

    record Properties(Map<String, Object> keyValues) implements EvaluationContext {
        @Override
        public Object get(String name) {
            return keyValues.get(name);
        }
    }

    static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }

    static String verdict(String filter, Map<String, Object> properties) {
        Expression compiled;
        try {
            compiled = SelectorParser.parse(filter);
        } catch (Throwable refused) {
            return "parse";
        }
        try {
            return String.valueOf(compiled.evaluate(new Properties(properties)));
        } catch (Throwable raised) {
            return "error";
        }
    }

    public static void main(String[] args) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        var out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            Map<String, Object> properties = new HashMap<>();
            for (int i = 1; i + 1 < fields.length; i += 2) {
                properties.put(text(fields[i]), text(fields[i + 1]));
            }
            out.write(verdict(text(fields[0]), properties));
            out.write('\n');
        }
        out.flush();
    }
}
