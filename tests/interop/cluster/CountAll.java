import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.BitSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads a whole topic with the official client and counts it. Bodies must be "NUMBER TEXT", keys "k-NUMBER".
 *
 * <p>Usage: CountAll NAME_SERVER TOPIC TEXT. Prints how many messages there were, how many different numbers, the
 * lowest and the highest of these, and how many messages were not as they should be.
 */
public final class CountAll {
    private CountAll() {}

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
        System.setOut(System.err); // the client's logging library prints about itself
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop-count");
        consumer.setNamesrvAddr(args[0]);
        consumer.start();
        BitSet seen = new BitSet();
        long messages = 0;
        long strange = 0;
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(args[1])) {
            long at = consumer.minOffset(queue);
            long end = consumer.maxOffset(queue);
            while (at < end) {
                PullResult result = consumer.pull(queue, "*", at, 1024);
                if (result.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        messages++;
                        String[] parts = new String(message.getBody(), StandardCharsets.UTF_8).split(" ", 2);
                        seen.set(Integer.parseInt(parts[0]));
                        if (!parts[1].equals(args[2]) || !message.getKeys().equals("k-" + parts[0])) {
                            strange++;
                        }
                    }
                }
                at = result.getNextBeginOffset();
            }
        }
        out.println(messages + " " + seen.cardinality() + " " + seen.nextSetBit(0) + " " + (seen.length() - 1) + " " + strange);
        System.exit(0); // the client's threads would keep the JVM alive
    }
}
