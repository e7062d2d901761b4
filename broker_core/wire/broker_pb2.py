"""Messages of broker.proto. Made by generate.py; do not edit."""

from google.protobuf import descriptor_pool, message_factory

# A pool of its own: another library's file of the same name would clash in the default one.
_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(
    b'\n\x0cbroker.proto\x12\x12rocketmq.broker.v1"B\n\x0cHelloRequest\x12\x1a\n\x08protocol\x18\x01'
    b' \x01(\rR\x08protocol\x12\x16\n\x06client\x18\x02 \x01(\tR\x06client"\x85\x02\n\nHelloReply\x12\x1a\n\x08protoco'
    b'l\x18\x01 \x01(\rR\x08protocol\x12\x16\n\x06server\x18\x02 \x01(\tR\x06server\x12\x1f\n\x0bbroker_name\x18\x03 \x01(\tR\n'
    b'brokerName\x12\x1a\n\x08instance\x18\x04 \x01(\x0cR\x08instance\x12\x1d\n\nstore_host\x18\x05 \x01(\x0cR\tstor'
    b'eHost\x12#\n\rmessage_bytes\x18\x06 \x01(\x04R\x0cmessageBytes\x12\x1f\n\x0bchunk_bytes\x18\x07 \x01(\x04R'
    b'\nchunkBytes\x12!\n\x0cappend_bytes\x18\x08 \x01(\x04R\x0bappendBytes"\x07\n\x05Empty"\x1d\n\x05Topic'
    b'\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic"#\n\tTopicList\x12\x16\n\x06topics\x18\x01 \x03(\tR\x06topics"V\n\x0bC'
    b'reateTopic\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x12\x16\n\x06queues\x18\x02 \x01(\x05R\x06queues\x12\x19\n\x08exis'
    b't_ok\x18\x03 \x01(\x08R\x07existOk"7\n\tAddQueues\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x12\x14\n\x05total\x18'
    b'\x02 \x01(\x05R\x05total"\xc5\x02\n\tTopicInfo\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x12\x1f\n\x0bbroker_name\x18'
    b'\x02 \x01(\tR\nbrokerName\x12\x1f\n\x0bread_queues\x18\x03 \x01(\x05R\nreadQueues\x12!\n\x0cwrite_queu'
    b'es\x18\x04 \x01(\x05R\x0bwriteQueues\x12\x12\n\x04perm\x18\x05 \x01(\x05R\x04perm\x12\x1b\n\tqueue_ids\x18\x06 \x03(\x05R\x08qu'
    b'eueIds\x12M\n\nattributes\x18\x07 \x03(\x0b2-.rocketmq.broker.v1.TopicInfo.Attrib'
    b'utesEntryR\nattributes\x1a=\n\x0fAttributesEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12\x14\n\x05va'
    b'lue\x18\x02 \x01(\tR\x05value:\x028\x01"\\\n\x0bQueueBounds\x12\x19\n\x08queue_id\x18\x01 \x01(\x05R\x07queueId\x12\x18'
    b'\n\x07minimum\x18\x02 \x01(\x03R\x07minimum\x12\x18\n\x07maximum\x18\x03 \x01(\x03R\x07maximum"g\n\x0bTopicBound'
    b's\x12\x1f\n\x0bbroker_name\x18\x01 \x01(\tR\nbrokerName\x127\n\x06queues\x18\x02 \x03(\x0b2\x1f.rocketmq.br'
    b'oker.v1.QueueBoundsR\x06queues"\x94\x01\n\x08OffsetAt\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x12\x19'
    b'\n\x08queue_id\x18\x02 \x01(\x05R\x07queueId\x12!\n\x0ctimestamp_ms\x18\x03 \x01(\x03R\x0btimestampMs\x12$\n\x0b'
    b'broker_name\x18\x04 \x01(\tH\x00R\nbrokerName\x88\x01\x01B\x0e\n\x0c_broker_name" \n\x06Offset\x12\x16\n\x06'
    b'offset\x18\x01 \x01(\x03R\x06offset"3\n\x05Group\x12\x14\n\x05group\x18\x01 \x01(\tR\x05group\x12\x14\n\x05topic\x18\x02 \x01'
    b'(\tR\x05topic"@\n\x0bQueueOffset\x12\x19\n\x08queue_id\x18\x01 \x01(\x05R\x07queueId\x12\x16\n\x06offset\x18\x02 '
    b'\x01(\x03R\x06offset"h\n\x0cGroupOffsets\x12\x1f\n\x0bbroker_name\x18\x01 \x01(\tR\nbrokerName\x127\n\x06'
    b'queues\x18\x02 \x03(\x0b2\x1f.rocketmq.broker.v1.QueueOffsetR\x06queues"\xa3\x01\n\x0cCommit'
    b'Offset\x12\x14\n\x05group\x18\x01 \x01(\tR\x05group\x12\x14\n\x05topic\x18\x02 \x01(\tR\x05topic\x12\x19\n\x08queue_id\x18\x03'
    b' \x01(\x05R\x07queueId\x12\x16\n\x06offset\x18\x04 \x01(\x03R\x06offset\x12$\n\x0bbroker_name\x18\x05 \x01(\tH\x00R\nbr'
    b'okerName\x88\x01\x01B\x0e\n\x0c_broker_name"u\n\x05Await\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x127\n\x06qu'
    b'eues\x18\x02 \x03(\x0b2\x1f.rocketmq.broker.v1.QueueOffsetR\x06queues\x12\x1d\n\ntimeout_m'
    b's\x18\x03 \x01(\x03R\ttimeoutMs"@\n\x06Filter\x12\x14\n\x04tags\x18\x01 \x01(\tH\x00R\x04tags\x12\x12\n\x03sql\x18\x02 \x01(\tH'
    b'\x00R\x03sqlB\x0c\n\nexpression"\xb4\x02\n\x04Pull\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x12\x1f\n\x0bbroker_na'
    b'me\x18\x02 \x01(\tR\nbrokerName\x12\x19\n\x08queue_id\x18\x03 \x01(\x05R\x07queueId\x12\x14\n\x05start\x18\x04 \x01(\x03R\x05'
    b'start\x12\x10\n\x03end\x18\x05 \x01(\x03R\x03end\x122\n\x06filter\x18\x06 \x01(\x0b2\x1a.rocketmq.broker.v1.Fil'
    b'terR\x06filter\x12\x1d\n\nbatch_rows\x18\x07 \x01(\x03R\tbatchRows\x12\x1f\n\x0bbatch_bytes\x18\x08 \x01(\x03R'
    b'\nbatchBytes\x12\x1b\n\x06verify\x18\t \x01(\x08H\x00R\x06verify\x88\x01\x01\x12\x16\n\x06follow\x18\n \x01(\x08R\x06follow'
    b'B\t\n\x07_verify"E\n\x05Query\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x12\x10\n\x03key\x18\x02 \x01(\tR\x03key\x12\x14\n\x05'
    b'limit\x18\x03 \x01(\x05R\x05limit"*\n\tMessageId\x12\x1d\n\nmessage_id\x18\x01 \x01(\tR\tmessageId"u'
    b'\n\tRequestId\x12\x16\n\x06client\x18\x01 \x01(\x0cR\x06client\x12\x1a\n\x08sequence\x18\x02 \x01(\x04R\x08sequence\x12'
    b'\x18\n\x07attempt\x18\x03 \x01(\rR\x07attempt\x12\x1a\n\x08instance\x18\x04 \x01(\x0cR\x08instance"|\n\nAppendH'
    b'ead\x127\n\x07request\x18\x01 \x01(\x0b2\x1d.rocketmq.broker.v1.RequestIdR\x07request\x12\x14\n\x05'
    b'flush\x18\x02 \x01(\tR\x05flush\x12\x1f\n\x0btotal_bytes\x18\x03 \x01(\x04R\ntotalBytes"7\n\x0cDeleteBef'
    b'ore\x12\'\n\x0fphysical_offset\x18\x01 \x01(\x03R\x0ephysicalOffset"s\n\x0bErrorDetail\x12\x1c\n\tc'
    b'ondition\x18\x01 \x01(\tR\tcondition\x12\x18\n\x07message\x18\x02 \x01(\tR\x07message\x12\x18\n\x07numbers\x18\x03'
    b' \x03(\x03R\x07numbers\x12\x12\n\x04path\x18\x04 \x01(\tR\x04pathb\x06proto3'
)
HelloRequest = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.HelloRequest")
)
HelloReply = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.HelloReply")
)
Empty = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.Empty")
)
Topic = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.Topic")
)
TopicList = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.TopicList")
)
CreateTopic = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.CreateTopic")
)
AddQueues = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.AddQueues")
)
TopicInfo = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.TopicInfo")
)
QueueBounds = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.QueueBounds")
)
TopicBounds = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.TopicBounds")
)
OffsetAt = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.OffsetAt")
)
Offset = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.Offset")
)
Group = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.Group")
)
QueueOffset = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.QueueOffset")
)
GroupOffsets = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.GroupOffsets")
)
CommitOffset = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.CommitOffset")
)
Await = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.Await")
)
Filter = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.Filter")
)
Pull = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.Pull")
)
Query = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.Query")
)
MessageId = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.MessageId")
)
RequestId = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.RequestId")
)
AppendHead = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.AppendHead")
)
DeleteBefore = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.DeleteBefore")
)
ErrorDetail = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.ErrorDetail")
)
