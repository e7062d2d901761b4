import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads a topic from its first message to its last with the official pull client, a thread for each queue.
 *
 * <p>Usage: PullAll NAME_SERVER TOPIC MAX. Each line of input makes it read everything once more, and is answered by a
 * line with how many messages and body bytes there were, and how many seconds it took: so the JVM gets warm.
 */
public final class PullAll {
    private static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), true);

    private PullAll() {}

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // the client's logging library prints about itself
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("bench-pull");
        consumer.setNamesrvAddr(args[0]);
        consumer.start();
        int max = Integer.parseInt(args[2]);
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(args[1]));
        ExecutorService threads = Executors.newFixedThreadPool(queues.size());
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        while (input.readLine() != null) {
            long begin = System.nanoTime();
            List<Future<long[]>> readers = new ArrayList<>();
            for (MessageQueue queue : queues) {
                Callable<long[]> reader = () -> read(consumer, queue, max);
                readers.add(threads.submit(reader));
            }
            long messages = 0;
            long bytes = 0;
            for (Future<long[]> reader : readers) {
                messages += reader.get()[0];
                bytes += reader.get()[1];
            }
            OUT.println(messages + " " + bytes + " " + (System.nanoTime() - begin) / 1e9);
        }
        System.exit(0);
    }

    private static long[] read(DefaultMQPullConsumer consumer, MessageQueue queue, int max) throws Exception {
        long at = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        long messages = 0;
        long bytes = 0;
        while (at < end) {
            PullResult result = consumer.pull(queue, "*", at, max);
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    messages++;
                    bytes += message.getBody().length;
                }
            }
            at = result.getNextBeginOffset();
        }
        return new long[] {messages, bytes};
    }
}
