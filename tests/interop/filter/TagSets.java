import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;

/**
 * Gives what Apache RocketMQ's client makes of tag expressions, one answer per input line.
 *
 * <p>A line is the expression, hex of UTF-8. The answer is the word error, or three tab-separated
 * fields: the normalised text in hex, the tags in hex and the hash codes, both comma-separated.
 */
public class TagSets {

    static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    static String answer(String expression) {
        SubscriptionData data;
        try {
            data = FilterAPI.buildSubscriptionData("topic", expression);
        } catch (Exception refused) {
            return "error";
        }
        String tags = data.getTagsSet().stream().map(TagSets::hex).sorted().collect(Collectors.joining(","));
        String codes =
                new TreeSet<>(data.getCodeSet())
                        .stream().map(String::valueOf).collect(Collectors.joining(","));
        return hex(data.getSubString()) + "\t" + tags + "\t" + codes;
    }

    public static void main(String[] args) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            byte[] expression = HexFormat.of().parseHex(line);
            System.out.println(answer(new String(expression, StandardCharsets.UTF_8)));
        }
    }
}
