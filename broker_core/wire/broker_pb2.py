"""Messages of broker.proto. Made by generate.py; do not edit."""

from google.protobuf import descriptor_pool, message_factory

# A pool of its own: another library's file of the same name would clash in the default one.
_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(
    b'\n\x0cbroker.proto\x12\x12rocketmq.broker.v1"B\n\x0cHelloRequest\x12\x1a\n\x08protocol\x18\x01'
    b' \x01(\rR\x08protocol\x12\x16\n\x06client\x18\x02 \x01(\tR\x06client"\xa8\x02\n\nHelloReply\x12\x1a\n\x08protoco'
    b'l\x18\x01 \x01(\rR\x08protocol\x12\x16\n\x06server\x18\x02 \x01(\tR\x06server\x12\x1f\n\x0bbroker_name\x18\x03 \x01(\tR\n'
    b'brokerName\x12\x1a\n\x08instance\x18\x04 \x01(\x0cR\x08instance\x12\x1d\n\nstore_host\x18\x05 \x01(\x0cR\tstor'
    b'eHost\x12#\n\rmessage_bytes\x18\x06 \x01(\x04R\x0cmessageBytes\x12\x1f\n\x0bchunk_bytes\x18\x07 \x01(\x04R'
    b'\nchunkBytes\x12!\n\x0cappend_bytes\x18\x08 \x01(\x04R\x0bappendBytes\x12!\n\x0cdelay_levels\x18\t'
    b' \x01(\x05R\x0bdelayLevels"\x07\n\x05Empty"\x1d\n\x05Topic\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic"#\n\tTop'
    b'icList\x12\x16\n\x06topics\x18\x01 \x03(\tR\x06topics"V\n\x0bCreateTopic\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05to'
    b'pic\x12\x16\n\x06queues\x18\x02 \x01(\x05R\x06queues\x12\x19\n\x08exist_ok\x18\x03 \x01(\x08R\x07existOk"7\n\tAddQue'
    b'ues\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x12\x14\n\x05total\x18\x02 \x01(\x05R\x05total"\xc5\x02\n\tTopicInfo\x12\x14\n'
    b'\x05topic\x18\x01 \x01(\tR\x05topic\x12\x1f\n\x0bbroker_name\x18\x02 \x01(\tR\nbrokerName\x12\x1f\n\x0bread_que'
    b'ues\x18\x03 \x01(\x05R\nreadQueues\x12!\n\x0cwrite_queues\x18\x04 \x01(\x05R\x0bwriteQueues\x12\x12\n\x04perm'
    b'\x18\x05 \x01(\x05R\x04perm\x12\x1b\n\tqueue_ids\x18\x06 \x03(\x05R\x08queueIds\x12M\n\nattributes\x18\x07 \x03(\x0b2-.'
    b'rocketmq.broker.v1.TopicInfo.AttributesEntryR\nattributes\x1a=\n\x0fAttr'
    b'ibutesEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12\x14\n\x05value\x18\x02 \x01(\tR\x05value:\x028\x01"\\\n\x0bQueue'
    b'Bounds\x12\x19\n\x08queue_id\x18\x01 \x01(\x05R\x07queueId\x12\x18\n\x07minimum\x18\x02 \x01(\x03R\x07minimum\x12\x18\n\x07m'
    b'aximum\x18\x03 \x01(\x03R\x07maximum"g\n\x0bTopicBounds\x12\x1f\n\x0bbroker_name\x18\x01 \x01(\tR\nbroke'
    b'rName\x127\n\x06queues\x18\x02 \x03(\x0b2\x1f.rocketmq.broker.v1.QueueBoundsR\x06queues"\x94'
    b'\x01\n\x08OffsetAt\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x12\x19\n\x08queue_id\x18\x02 \x01(\x05R\x07queueId\x12!\n\x0c'
    b'timestamp_ms\x18\x03 \x01(\x03R\x0btimestampMs\x12$\n\x0bbroker_name\x18\x04 \x01(\tH\x00R\nbrokerNa'
    b'me\x88\x01\x01B\x0e\n\x0c_broker_name" \n\x06Offset\x12\x16\n\x06offset\x18\x01 \x01(\x03R\x06offset"3\n\x05Group'
    b'\x12\x14\n\x05group\x18\x01 \x01(\tR\x05group\x12\x14\n\x05topic\x18\x02 \x01(\tR\x05topic"@\n\x0bQueueOffset\x12\x19\n\x08q'
    b'ueue_id\x18\x01 \x01(\x05R\x07queueId\x12\x16\n\x06offset\x18\x02 \x01(\x03R\x06offset"h\n\x0cGroupOffsets\x12\x1f'
    b'\n\x0bbroker_name\x18\x01 \x01(\tR\nbrokerName\x127\n\x06queues\x18\x02 \x03(\x0b2\x1f.rocketmq.broke'
    b'r.v1.QueueOffsetR\x06queues"\xa3\x01\n\x0cCommitOffset\x12\x14\n\x05group\x18\x01 \x01(\tR\x05group\x12'
    b'\x14\n\x05topic\x18\x02 \x01(\tR\x05topic\x12\x19\n\x08queue_id\x18\x03 \x01(\x05R\x07queueId\x12\x16\n\x06offset\x18\x04 \x01(\x03'
    b'R\x06offset\x12$\n\x0bbroker_name\x18\x05 \x01(\tH\x00R\nbrokerName\x88\x01\x01B\x0e\n\x0c_broker_name"u'
    b'\n\x05Await\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x127\n\x06queues\x18\x02 \x03(\x0b2\x1f.rocketmq.broker.'
    b'v1.QueueOffsetR\x06queues\x12\x1d\n\ntimeout_ms\x18\x03 \x01(\x03R\ttimeoutMs"@\n\x06Filter\x12'
    b'\x14\n\x04tags\x18\x01 \x01(\tH\x00R\x04tags\x12\x12\n\x03sql\x18\x02 \x01(\tH\x00R\x03sqlB\x0c\n\nexpression"\xb4\x02\n\x04Pull'
    b'\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x12\x1f\n\x0bbroker_name\x18\x02 \x01(\tR\nbrokerName\x12\x19\n\x08queue'
    b'_id\x18\x03 \x01(\x05R\x07queueId\x12\x14\n\x05start\x18\x04 \x01(\x03R\x05start\x12\x10\n\x03end\x18\x05 \x01(\x03R\x03end\x122\n\x06fi'
    b'lter\x18\x06 \x01(\x0b2\x1a.rocketmq.broker.v1.FilterR\x06filter\x12\x1d\n\nbatch_rows\x18\x07 \x01'
    b'(\x03R\tbatchRows\x12\x1f\n\x0bbatch_bytes\x18\x08 \x01(\x03R\nbatchBytes\x12\x1b\n\x06verify\x18\t \x01(\x08H\x00'
    b'R\x06verify\x88\x01\x01\x12\x16\n\x06follow\x18\n \x01(\x08R\x06followB\t\n\x07_verify"E\n\x05Query\x12\x14\n\x05topic'
    b'\x18\x01 \x01(\tR\x05topic\x12\x10\n\x03key\x18\x02 \x01(\tR\x03key\x12\x14\n\x05limit\x18\x03 \x01(\x05R\x05limit"*\n\tMessage'
    b'Id\x12\x1d\n\nmessage_id\x18\x01 \x01(\tR\tmessageId"u\n\tRequestId\x12\x16\n\x06client\x18\x01 \x01(\x0cR\x06'
    b'client\x12\x1a\n\x08sequence\x18\x02 \x01(\x04R\x08sequence\x12\x18\n\x07attempt\x18\x03 \x01(\rR\x07attempt\x12\x1a\n\x08'
    b'instance\x18\x04 \x01(\x0cR\x08instance"|\n\nAppendHead\x127\n\x07request\x18\x01 \x01(\x0b2\x1d.rocket'
    b'mq.broker.v1.RequestIdR\x07request\x12\x14\n\x05flush\x18\x02 \x01(\tR\x05flush\x12\x1f\n\x0btotal_b'
    b'ytes\x18\x03 \x01(\x04R\ntotalBytes"7\n\x0cDeleteBefore\x12\'\n\x0fphysical_offset\x18\x01 \x01(\x03R'
    b'\x0ephysicalOffset"s\n\x0bErrorDetail\x12\x1c\n\tcondition\x18\x01 \x01(\tR\tcondition\x12\x18\n\x07'
    b'message\x18\x02 \x01(\tR\x07message\x12\x18\n\x07numbers\x18\x03 \x03(\x03R\x07numbers\x12\x12\n\x04path\x18\x04 \x01(\tR\x04'
    b'pathb\x06proto3'
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
