import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Sends messages of every kind with the official client, and prints what the broker acknowledged, one JSON line each.
 *
 * <p>Usage: Produce NAME_SERVER BROKER SEED STEP..., where a step is KIND:TOPIC:QUEUES:COUNT. The topic is made or
 * changed to have that many queues. Kinds:
 *
 * <pre>
 *   plain        one message a send; tags, keys, properties and body sizes vary
 *   zlib lz4     bodies over the client's limit, compressed that way
 *   zstd
 *   batch        up to 16 messages a send
 *   ordered      the queue follows from a sharding key
 *   delayed      level 1, and every fourth one level 18, which stays pending
 *   transaction  a third each committed, rolled back, and left undecided
 * </pre>
 *
 * <p>Content follows from the seed and the steps alone; offsets, times and unique keys do not. A line has the fields of
 * the message under the names of tests/fixtures, with the properties as given to the client, and the place where the
 * broker put it: for a delayed or transactional message that is not the place where consumers find it, so the kind
 * and, for transactions, the decision are told too, and a transactional message has no msgId. Compiles with the clients of releases 4.9 and 5.
 */
public final class Produce {
    private static final String[] TAGS = {null, "red", "green", "Aa", "BB", "\u6807\u7b7e", "with space"};
    private static final String[] WORDS =
        "quick brown fox ledger invoice parcel \u8ba2\u5355 na\u00efve \ud83d\ude80 0 true".split(" ");
    private static final int BATCH_MAX = 16;

    private final String nameServer;
    private final String broker;
    private final Random random;
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(15_000);
    private int clients;

    private Produce(String nameServer, String broker, long seed) throws MQClientException {
        this.nameServer = nameServer;
        this.broker = broker;
        this.random = new Random(seed);
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName("admin");
        admin.start();
    }

    public static void main(String[] args) {
        Json.ownStandardOutput();
        int status = 1;
        try {
            Produce produce = new Produce(args[0], args[1], Long.parseLong(args[2]));
            for (String step : Arrays.asList(args).subList(3, args.length)) {
                String[] parts = step.split(":");
                produce.run(parts[0], parts[1], Integer.parseInt(parts[2]), Integer.parseInt(parts[3]));
            }
            status = 0;
        } catch (Exception failure) {
            failure.printStackTrace();
        }
        System.exit(status); // the clients' threads would keep the JVM alive, and shutting each down takes seconds
    }

    private void run(String kind, String topic, int queues, int count) throws Exception {
        createTopic(topic, queues);
        switch (kind) {
            case "plain" -> each(producer("ZLIB"), kind, topic, count, 0);
            case "zlib", "lz4", "zstd" -> each(producer(kind.toUpperCase()), kind, topic, count, 5_000);
            case "delayed" -> each(producer("ZLIB"), kind, topic, count, 0);
            case "batch" -> batches(topic, queues, count);
            case "ordered" -> ordered(topic, count);
            case "transaction" -> transactions(topic, count);
            default -> throw new IllegalArgumentException("unknown kind: " + kind);
        }
    }

    // Kinds of sends.

    private void each(DefaultMQProducer producer, String kind, String topic, int count, int leastBytes) throws Exception {
        for (int i = 0; i < count; i++) {
            Message message = message(topic, leastBytes);
            if (kind.equals("delayed")) message.setDelayTimeLevel(i % 4 == 3 ? 18 : 1);
            Map<String, Object> line = describe(kind, message);
            acknowledge(line, producer.send(message));
        }
    }

    private void batches(String topic, int queues, int count) throws Exception {
        DefaultMQProducer producer = producer("ZLIB");
        String brokerName = producer.fetchPublishMessageQueues(topic).get(0).getBrokerName();
        for (int sent = 0; sent < count; ) {
            List<Message> batch = new ArrayList<>();
            List<Map<String, Object>> lines = new ArrayList<>();
            for (int size = Math.min(1 + random.nextInt(BATCH_MAX), count - sent); batch.size() < size; ) {
                batch.add(message(topic, 0));
                lines.add(describe("batch", batch.get(batch.size() - 1)));
            }
            SendResult result = producer.send(batch, new MessageQueue(topic, brokerName, random.nextInt(queues)));
            String[] keys = result.getMsgId().split(","), ids = result.getOffsetMsgId().split(",");
            for (int i = 0; i < ids.length; i++) {
                place(lines.get(i), result, result.getQueueOffset() + i, ids[i], keys[i]);
            }
            sent += batch.size();
        }
    }

    private void ordered(String topic, int count) throws Exception {
        DefaultMQProducer producer = producer("ZLIB");
        for (int i = 0; i < count; i++) {
            int customer = random.nextInt(10);
            Message message = message(topic, 0);
            message.putUserProperty("customer", "c" + customer);
            Map<String, Object> line = describe("ordered", message);
            acknowledge(line, producer.send(message, (queues, m, key) -> queues.get((Integer) key % queues.size()), customer));
        }
    }

    private void transactions(String topic, int count) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("interop-transactions");
        configure(producer);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        LocalTransactionState[] states = LocalTransactionState.values();
        for (int i = 0; i < count; i++) {
            Message message = message(topic, 0);
            Map<String, Object> line = describe("transaction", message);
            TransactionSendResult result = producer.sendMessageInTransaction(message, states[i % states.length]);
            line.put("decision", result.getLocalTransactionState().name());
            acknowledge(line, result);
        }
    }

    // Acknowledgements.

    private static void acknowledge(Map<String, Object> line, SendResult result) {
        place(line, result, result.getQueueOffset(), result.getOffsetMsgId(), result.getMsgId());
    }

    private static void place(Map<String, Object> line, SendResult result, long queueOffset, String id, String uniqKey) {
        line.put("status", result.getSendStatus().name());
        line.put("queueId", result.getMessageQueue().getQueueId());
        line.put("queueOffset", queueOffset);
        line.put("msgId", id);
        line.put("uniqKey", uniqKey);
        Json.print(line);
    }

    private static Map<String, Object> describe(String kind, Message message) throws Exception {
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(message.getBody());
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", kind);
        line.put("topic", message.getTopic());
        line.put("tags", message.getTags());
        line.put("keys", message.getKeys());
        line.put("properties", properties(message));
        line.put("flag", message.getFlag());
        line.put("bodyLength", message.getBody().length);
        line.put("bodySha256", HexFormat.of().formatHex(digest));
        return line;
    }

    /** Without the client's own WAIT, which releases before 5 do not store. */
    private static Map<String, String> properties(Message message) {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        properties.remove("WAIT");
        return properties;
    }

    // Messages, all from one stream of random numbers.

    private Message message(String topic, int leastBytes) {
        Message message = new Message(topic, body(leastBytes + bodyLength()));
        String tag = TAGS[random.nextInt(TAGS.length)];
        if (tag != null) message.setTags(tag);
        switch (random.nextInt(3)) {
            case 0 -> message.setKeys("invoice-" + random.nextInt(40));
            case 1 -> message.setKeys(List.of("parcel-" + random.nextInt(1_000_000), "shelf-" + random.nextInt(8)));
            default -> { }
        }
        if (random.nextBoolean()) message.putUserProperty("amount", String.valueOf(random.nextInt(100_000) / 100.0));
        if (random.nextBoolean()) message.putUserProperty("region", random.nextBoolean() ? "n\u00f6rd" : "south");
        if (random.nextInt(10) == 0) message.putUserProperty("\u540d", "= & \" \\ \ud83d\ude80");
        if (random.nextInt(10) == 0) message.setFlag(random.nextInt());
        return message;
    }

    private int bodyLength() {
        int kind = random.nextInt(20);
        return kind == 0 ? 1 : kind < 17 ? 1 + random.nextInt(200) : 200 + random.nextInt(2_000);
    }

    private byte[] body(int length) {
        StringBuilder text = new StringBuilder();
        while (text.length() < length) text.append(WORDS[random.nextInt(WORDS.length)]).append(' ');
        return Arrays.copyOf(text.toString().getBytes(StandardCharsets.UTF_8), length);
    }

    // Clients.

    private void createTopic(String name, int queues) throws Exception {
        TopicConfig config = new TopicConfig(name);
        config.setReadQueueNums(queues);
        config.setWriteQueueNums(queues);
        admin.createAndUpdateTopicConfig(broker, config);
        for (long deadline = System.currentTimeMillis() + 30_000; ; Thread.sleep(50)) {
            try {
                if (admin.examineTopicRouteInfo(name).getQueueDatas().get(0).getWriteQueueNums() == queues) return;
            } catch (MQClientException unknownYet) {
                if (System.currentTimeMillis() > deadline) throw unknownYet;
            }
        }
    }

    /** A client reads its compression from this system property when it is made, in every release that has a choice. */
    private DefaultMQProducer producer(String compression) throws MQClientException {
        System.setProperty("rocketmq.message.compressType", compression);
        DefaultMQProducer producer = new DefaultMQProducer("interop-producer");
        configure(producer);
        producer.start();
        return producer;
    }

    private void configure(DefaultMQProducer producer) {
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("producer-" + clients++);
    }
}
