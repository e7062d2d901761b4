import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.CommunicationMode;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.impl.consumer.PullResultExt;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.common.sysflag.PullSysFlag;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Prints all that a broker holds, as the official client reads it: one JSON document in the form of tests/fixtures.
 *
 * <p>Usage: Dump NAME_SERVER BROKER, with queries on standard input, one a line, their fields separated by tabs:
 *
 * <pre>
 *   key     TOPIC  KEY           messages with this key
 *   unique  TOPIC  KEY           messages with this unique key
 *   id      TOPIC  MSG_ID        the message with this offset message id
 *   time    TOPIC  QUEUE  TIME   offset for a store time in milliseconds
 *   tag     TOPIC  EXPRESSION    offsets that a pull with this tag expression delivers
 *   sql     TOPIC  EXPRESSION    offsets that a pull with this SQL92 expression delivers
 * </pre>
 *
 * <p>Every queue is read twice. The records as the broker sent them give what is printed: fields as stored, after the
 * client's decoder has checked the body's CRC. An ordinary pull must then deliver the same messages, apart from what
 * a client always changes: it inflates bodies, clears the flag that says so, and adds two properties.
 */
public final class Dump {
    private static final String GROUP = "interop-dump"; // a broker makes a retry topic for it, which is not printed
    private static final long TIMEOUT_MS = 15_000;
    private static final int PULL_SIZE = 1024;
    private static final int QUERY_LIMIT = 64;
    private static final int NO_MESSAGE = 208; // what the client's MQClientException says when a query finds nothing

    private final String broker;
    private final String brokerName;
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(TIMEOUT_MS);
    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(GROUP);
    private final MQClientAPIImpl api;
    private final Map<String, TreeMap<Integer, Queue>> topics = new TreeMap<>();

    private Dump(String nameServer, String broker) throws Exception {
        this.broker = broker;
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName("admin");
        admin.start();
        consumer.setNamesrvAddr(nameServer);
        consumer.start();
        api = admin.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl();
        brokerName = awaitName();
    }

    public static void main(String[] args) throws Exception {
        Json.ownStandardOutput();
        List<String[]> queries = new ArrayList<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) queries.add(line.split("\t"));
        int status = 1;
        try {
            Json.print(new Dump(args[0], args[1]).document(queries));
            status = 0;
        } catch (Exception failure) {
            failure.printStackTrace();
        }
        System.exit(status); // the client's threads would keep the JVM alive
    }

    private Map<String, Object> document(List<String[]> queries) throws Exception {
        Map<String, String> stats = awaitDispatch();
        Map<String, Object> document = new LinkedHashMap<>();
        document.put("broker", stats.get("brokerVersionDesc"));
        document.put("commitLogMinOffset", Long.valueOf(stats.get("commitLogMinOffset")));
        document.put("commitLogMaxOffset", Long.valueOf(stats.get("commitLogMaxOffset")));
        document.put("consumerOffsets", offsetTable(RequestCode.GET_ALL_CONSUMER_OFFSET));
        document.put("delayOffsets", offsetTable(RequestCode.GET_ALL_DELAY_OFFSET));
        Map<String, Object> described = new TreeMap<>();
        for (TopicConfig config : api.getAllTopicConfig(broker, TIMEOUT_MS).getTopicConfigTable().values()) {
            if (!config.getTopicName().equals("%RETRY%" + GROUP)) described.put(config.getTopicName(), topic(config));
        }
        document.put("topics", described);
        document.put("queries", answers(queries));
        return document;
    }

    /** A broker answers its own port before the name server knows it. */
    private String awaitName() throws Exception {
        while (true) {
            for (var data : admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
                if (data.getBrokerAddrs().containsValue(broker)) return data.getBrokerName();
            }
            Thread.sleep(50);
        }
    }

    private Map<String, String> awaitDispatch() throws Exception {
        while (true) {
            Map<String, String> stats = runtimeStats();
            if (Long.parseLong(stats.getOrDefault("dispatchBehindBytes", "0")) == 0) return stats;
            Thread.sleep(50);
        }
    }

    /** A broker takes its first sample after a second; 4.9's can't say anything before that. */
    private Map<String, String> runtimeStats() throws Exception {
        for (int tries = 1; ; tries++) {
            try {
                return admin.fetchBrokerRuntimeStats(broker).getTable();
            } catch (MQBrokerException tooEarly) {
                if (tries == 100 || !String.valueOf(tooEarly.getErrorMessage()).contains("NoSuchElement")) throw tooEarly;
                Thread.sleep(50);
            }
        }
    }

    // Topics and queues.

    private record Queue(MessageQueue at, long min, long max, List<MessageClientExt> stored) {}

    private Map<String, Object> topic(TopicConfig config) throws Exception {
        TreeMap<Integer, Queue> held = new TreeMap<>();
        Map<String, Object> queues = new LinkedHashMap<>();
        for (int id = 0; id < Math.max(config.getReadQueueNums(), config.getWriteQueueNums()); id++) {
            MessageQueue at = new MessageQueue(config.getTopicName(), brokerName, id);
            long max = api.getMaxOffset(broker, at, TIMEOUT_MS);
            if (max == 0) continue;
            Queue queue = new Queue(at, api.getMinOffset(broker, at, TIMEOUT_MS), max, new ArrayList<>());
            held.put(id, queue);
            queues.put(String.valueOf(id), contents(queue));
        }
        topics.put(config.getTopicName(), held);
        Map<String, Object> topic = new LinkedHashMap<>();
        topic.put("readQueueNums", config.getReadQueueNums());
        topic.put("writeQueueNums", config.getWriteQueueNums());
        topic.put("perm", config.getPerm());
        topic.put("queues", queues);
        return topic;
    }

    private Map<String, Object> contents(Queue queue) throws Exception {
        List<Object> messages = new ArrayList<>();
        List<MessageExt> pulled = pull(queue, MessageSelector.byTag("*"));
        for (ByteBuffer records : records(queue)) {
            while (records.hasRemaining()) {
                ByteBuffer copy = records.duplicate();
                // Arguments: body, inflate, client's class, keep properties text, check CRC.
                MessageClientExt stored = (MessageClientExt) MessageDecoder.decode(records, true, false, true, false, true);
                MessageExt inflated = MessageDecoder.decode(copy, true, true, true, false, false);
                if (stored == null) throw new IllegalStateException("undecodable record in " + queue.at);
                queue.stored.add(stored);
                messages.add(describe(stored, inflated.getBody()));
                requireSame(stored, inflated.getBody(), pulled.get(messages.size() - 1));
            }
        }
        if (pulled.size() != messages.size()) {
            throw new IllegalStateException(pulled.size() + " pulled, " + messages.size() + " records: " + queue.at);
        }
        Map<String, Object> contents = new LinkedHashMap<>();
        contents.put("minOffset", queue.min);
        contents.put("maxOffset", queue.max);
        contents.put("messages", messages);
        return contents;
    }

    /** The bodies of pull responses from the queue's min to its max offset. */
    private List<ByteBuffer> records(Queue queue) throws Exception {
        PullMessageRequestHeader request = new PullMessageRequestHeader();
        request.setConsumerGroup(GROUP);
        request.setTopic(queue.at.getTopic());
        request.setQueueId(queue.at.getQueueId());
        request.setMaxMsgNums(PULL_SIZE);
        request.setSysFlag(PullSysFlag.buildSysFlag(false, false, true, false));
        request.setCommitOffset(0L);
        request.setSuspendTimeoutMillis(0L);
        request.setSubscription("*");
        request.setSubVersion(0L);
        request.setExpressionType("TAG");
        List<ByteBuffer> bodies = new ArrayList<>();
        for (long offset = queue.min; offset < queue.max; ) {
            request.setQueueOffset(offset);
            PullResultExt result = (PullResultExt) api.pullMessage(broker, request, TIMEOUT_MS, CommunicationMode.SYNC, null);
            if (result.getPullStatus() == PullStatus.FOUND) bodies.add(ByteBuffer.wrap(result.getMessageBinary()));
            offset = next(queue, offset, result);
        }
        return bodies;
    }

    private List<MessageExt> pull(Queue queue, MessageSelector selector) throws Exception {
        List<MessageExt> messages = new ArrayList<>();
        for (long offset = queue.min; offset < queue.max; ) {
            PullResult result = consumer.pull(queue.at, selector, offset, PULL_SIZE);
            if (result.getPullStatus() == PullStatus.FOUND) messages.addAll(result.getMsgFoundList());
            offset = next(queue, offset, result);
        }
        return messages;
    }

    private static long next(Queue queue, long offset, PullResult result) {
        if (result.getNextBeginOffset() > offset) return result.getNextBeginOffset();
        throw new IllegalStateException(result.getPullStatus() + " at offset " + offset + " of " + queue.at);
    }

    private static Map<String, Object> describe(MessageClientExt stored, byte[] body) throws Exception {
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(body);
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("queueOffset", stored.getQueueOffset());
        fields.put("commitLogOffset", stored.getCommitLogOffset());
        fields.put("storeSize", stored.getStoreSize());
        fields.put("msgId", stored.getOffsetMsgId());
        fields.put("uniqKey", stored.getProperty("UNIQ_KEY"));
        fields.put("tags", stored.getTags());
        fields.put("keys", stored.getKeys());
        fields.put("properties", new TreeMap<>(stored.getProperties()));
        fields.put("bodyLength", body.length);
        fields.put("bodySha256", HexFormat.of().formatHex(digest));
        fields.put("storedBodyLength", stored.getBody().length);
        fields.put("bodyCRC", stored.getBodyCRC());
        fields.put("bornTimestamp", stored.getBornTimestamp());
        fields.put("storeTimestamp", stored.getStoreTimestamp());
        fields.put("bornHost", host(stored.getBornHost()));
        fields.put("storeHost", host(stored.getStoreHost()));
        fields.put("flag", stored.getFlag());
        fields.put("sysFlag", stored.getSysFlag());
        fields.put("reconsumeTimes", stored.getReconsumeTimes());
        fields.put("preparedTransactionOffset", stored.getPreparedTransactionOffset());
        return fields;
    }

    /** Java prints a socket address as name/address:port, with the name often empty. */
    private static String host(Object address) {
        return address.toString().substring(address.toString().indexOf('/') + 1);
    }

    private static void requireSame(MessageExt stored, byte[] body, MessageExt pulled) {
        List<Function<MessageExt, Object>> fields = List.of(
            MessageExt::getTopic, MessageExt::getQueueId, MessageExt::getQueueOffset, MessageExt::getCommitLogOffset,
            MessageExt::getStoreSize, MessageExt::getBodyCRC, MessageExt::getBornTimestamp, MessageExt::getStoreTimestamp,
            MessageExt::getBornHost, MessageExt::getStoreHost, MessageExt::getFlag, MessageExt::getReconsumeTimes,
            MessageExt::getPreparedTransactionOffset, MessageExt::getTags, MessageExt::getKeys, Dump::plainFlag,
            Dump::ownProperties);
        for (int i = 0; i < fields.size(); i++) {
            Object one = fields.get(i).apply(stored), other = fields.get(i).apply(pulled);
            if (one == null ? other != null : !one.equals(other)) {
                throw new IllegalStateException("field " + i + ": stored " + one + ", pulled " + other + " of " + pulled);
            }
        }
        if (!Arrays.equals(body, pulled.getBody())) throw new IllegalStateException("body differs: " + pulled);
    }

    private static Object plainFlag(MessageExt message) {
        return message.getSysFlag() & ~MessageSysFlag.COMPRESSED_FLAG;
    }

    private static Object ownProperties(MessageExt message) {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        properties.remove("MIN_OFFSET");
        properties.remove("MAX_OFFSET");
        return properties;
    }

    // Queries.

    private Map<String, List<Object>> answers(List<String[]> queries) throws Exception {
        // The broker's answer to a heartbeat tells the client that it may use SQL92.
        consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
        Map<String, List<Object>> answers = new LinkedHashMap<>();
        for (String section : List.of("byKey", "byId", "byTime", "byTag", "bySql")) answers.put(section, new ArrayList<>());
        for (String[] query : queries) {
            String topic = query[1], text = query[2];
            switch (query[0]) {
                case "key", "unique" -> answers.get("byKey").add(byKey(topic, text, query[0].equals("unique")));
                case "id" -> answers.get("byId").add(byId(topic, text));
                case "time" -> answers.get("byTime").add(byTime(topic, Integer.parseInt(text), Long.parseLong(query[3])));
                case "tag" -> answers.get("byTag").add(filtered(topic, text, MessageSelector.byTag(text)));
                case "sql" -> answers.get("bySql").add(filtered(topic, text, MessageSelector.bySql(text)));
                default -> throw new IllegalArgumentException("unknown kind of query: " + query[0]);
            }
        }
        return answers;
    }

    private Map<String, Object> byKey(String topic, String key, boolean unique) throws Exception {
        List<String> ids = new ArrayList<>();
        try {
            QueryResult result = unique
                ? consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().getMQAdminImpl()
                    .queryMessageByUniqKey(topic, key, QUERY_LIMIT, 0, Long.MAX_VALUE)
                : admin.queryMessage(topic, key, QUERY_LIMIT, 0, Long.MAX_VALUE);
            for (MessageExt found : result.getMessageList()) ids.add(((MessageClientExt) found).getOffsetMsgId());
        } catch (MQClientException failure) {
            if (failure.getResponseCode() != NO_MESSAGE) throw failure;
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("topic", topic);
        answer.put("key", key);
        answer.put("unique", unique);
        answer.put("msgIds", ids);
        return answer;
    }

    /** Asks this broker for the place in the id, whatever address the id has: a store may have moved since. */
    private Map<String, Object> byId(String topic, String msgId) throws Exception {
        long physicalOffset = MessageDecoder.decodeMessageId(msgId).getOffset();
        MessageExt found = api.viewMessage(broker, topic, physicalOffset, TIMEOUT_MS);
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("topic", found.getTopic());
        answer.put("msgId", msgId);
        answer.put("queueId", found.getQueueId());
        answer.put("queueOffset", found.getQueueOffset());
        answer.put("uniqKey", found.getProperty("UNIQ_KEY"));
        return answer;
    }

    private Map<String, Object> byTime(String topic, int queueId, long time) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("topic", topic);
        answer.put("queueId", queueId);
        answer.put("timestamp", time);
        answer.put("offset", consumer.searchOffset(new MessageQueue(topic, brokerName, queueId), time));
        return answer;
    }

    private Map<String, Object> filtered(String topic, String expression, MessageSelector selector) throws Exception {
        Map<String, Object> offsets = new LinkedHashMap<>();
        for (Queue queue : topics.get(topic).values()) {
            List<Long> delivered = new ArrayList<>();
            for (MessageExt message : pull(queue, selector)) delivered.add(message.getQueueOffset());
            offsets.put(String.valueOf(queue.at.getQueueId()), delivered);
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("topic", topic);
        answer.put("expression", expression);
        answer.put("queueOffsets", offsets);
        return answer;
    }

    /** A table of offsets as the broker sends it to its slaves; an empty map where it has none. */
    private Object offsetTable(int code) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        RemotingCommand response = api.getRemotingClient().invokeSync(broker, request, TIMEOUT_MS);
        if (response.getCode() != ResponseCode.SUCCESS || response.getBody() == null) return Map.of();
        Object table = JSON.parseObject(new String(response.getBody(), StandardCharsets.UTF_8)).get("offsetTable");
        return table == null ? Map.of() : table;
    }
}
