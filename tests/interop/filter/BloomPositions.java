import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.stream.Collectors;
import org.apache.rocketmq.filter.util.BitsArray;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * Gives the bits that Apache RocketMQ's Bloom filter assigns to keys, one answer per input line.
 *
 * <p>A line is error rate, number of filters and key (hex of UTF-8), tab-separated. The answer is m,
 * the comma-separated positions, and the bitmap in hex, tab-separated.
 */
public class BloomPositions {

    public static void main(String[] args) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        var hex = HexFormat.of();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            int errorPercent = Integer.parseInt(fields[0]);
            int filters = Integer.parseInt(fields[1]);
            String key = new String(hex.parseHex(fields[2]), StandardCharsets.UTF_8);
            BloomFilter bloom = BloomFilter.createByFn(errorPercent, filters);
            int[] positions = bloom.calcBitPositions(key);
            BitsArray bits = BitsArray.create(bloom.getM());
            bloom.hashTo(positions, bits);
            String listed =
                    Arrays.stream(positions).mapToObj(String::valueOf).collect(Collectors.joining(","));
            System.out.println(bloom.getM() + "\t" + listed + "\t" + hex.formatHex(bits.bytes()));
        }
    }
}
