"""Messages of broker.proto. Made by tools/generate_wire.py; do not edit."""

from google.protobuf import descriptor_pool, message_factory

# A pool of its own: another library's file of the same name would clash in the default one.
_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(
    b'\n\x0cbroker.proto\x12\x12rocketmq.broker.v1"B\n\x0cHelloRequest\x12\x1a\n\x08protocol\x18\x01'
    b' \x01(\rR\x08protocol\x12\x16\n\x06client\x18\x02 \x01(\tR\x06client"\xcf\x02\n\nHelloReply\x12\x1a\n\x08protoco'
    b'l\x18\x01 \x01(\rR\x08protocol\x12\x16\n\x06server\x18\x02 \x01(\tR\x06server\x12\x1f\n\x0bbroker_name\x18\x03 \x01(\tR\n'
    b'brokerName\x12\x1a\n\x08instance\x18\x04 \x01(\x0cR\x08instance\x12\x1d\n\nstore_host\x18\x05 \x01(\x0cR\tstor'
    b'eHost\x12#\n\rmessage_bytes\x18\x06 \x01(\x04R\x0cmessageBytes\x12\x1f\n\x0bchunk_bytes\x18\x07 \x01(\x04R'
    b'\nchunkBytes\x12!\n\x0cappend_bytes\x18\x08 \x01(\x04R\x0bappendBytes\x12!\n\x0cdelay_levels\x18\t'
    b' \x01(\x05R\x0bdelayLevels\x12%\n\x0ecreates_topics\x18\n \x01(\x08R\rcreatesTopics"\x07\n\x05Empt'
    b'y"\x9b\x01\n\x05Stats\x12\x14\n\x05store\x18\x01 \x01(\tR\x05store\x12@\n\x07numbers\x18\x02 \x03(\x0b2&.rocketmq.br'
    b'oker.v1.Stats.NumbersEntryR\x07numbers\x1a:\n\x0cNumbersEntry\x12\x10\n\x03key\x18\x01 \x01(\t'
    b'R\x03key\x12\x14\n\x05value\x18\x02 \x01(\x03R\x05value:\x028\x01"\x1d\n\x05Topic\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic"#'
    b'\n\tTopicList\x12\x16\n\x06topics\x18\x01 \x03(\tR\x06topics"w\n\x0bCreateTopic\x12\x14\n\x05topic\x18\x01 \x01('
    b'\tR\x05topic\x12\x16\n\x06queues\x18\x02 \x01(\x05R\x06queues\x12\x19\n\x08exist_ok\x18\x03 \x01(\x08R\x07existOk\x12\x1f\n\x0bf'
    b'or_sending\x18\x04 \x01(\x08R\nforSending"7\n\tAddQueues\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x12'
    b'\x14\n\x05total\x18\x02 \x01(\x05R\x05total"\xc5\x02\n\tTopicInfo\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x12\x1f\n\x0bbro'
    b'ker_name\x18\x02 \x01(\tR\nbrokerName\x12\x1f\n\x0bread_queues\x18\x03 \x01(\x05R\nreadQueues\x12!\n\x0cw'
    b'rite_queues\x18\x04 \x01(\x05R\x0bwriteQueues\x12\x12\n\x04perm\x18\x05 \x01(\x05R\x04perm\x12\x1b\n\tqueue_ids\x18'
    b'\x06 \x03(\x05R\x08queueIds\x12M\n\nattributes\x18\x07 \x03(\x0b2-.rocketmq.broker.v1.TopicIn'
    b'fo.AttributesEntryR\nattributes\x1a=\n\x0fAttributesEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03'
    b'key\x12\x14\n\x05value\x18\x02 \x01(\tR\x05value:\x028\x01"\\\n\x0bQueueBounds\x12\x19\n\x08queue_id\x18\x01 \x01(\x05R\x07'
    b'queueId\x12\x18\n\x07minimum\x18\x02 \x01(\x03R\x07minimum\x12\x18\n\x07maximum\x18\x03 \x01(\x03R\x07maximum"g\n\x0bT'
    b'opicBounds\x12\x1f\n\x0bbroker_name\x18\x01 \x01(\tR\nbrokerName\x127\n\x06queues\x18\x02 \x03(\x0b2\x1f.ro'
    b'cketmq.broker.v1.QueueBoundsR\x06queues"\x94\x01\n\x08OffsetAt\x12\x14\n\x05topic\x18\x01 \x01(\t'
    b'R\x05topic\x12\x19\n\x08queue_id\x18\x02 \x01(\x05R\x07queueId\x12!\n\x0ctimestamp_ms\x18\x03 \x01(\x03R\x0btimest'
    b'ampMs\x12$\n\x0bbroker_name\x18\x04 \x01(\tH\x00R\nbrokerName\x88\x01\x01B\x0e\n\x0c_broker_name" \n\x06O'
    b'ffset\x12\x16\n\x06offset\x18\x01 \x01(\x03R\x06offset"3\n\x05Group\x12\x14\n\x05group\x18\x01 \x01(\tR\x05group\x12\x14\n\x05'
    b'topic\x18\x02 \x01(\tR\x05topic"@\n\x0bQueueOffset\x12\x19\n\x08queue_id\x18\x01 \x01(\x05R\x07queueId\x12\x16\n\x06'
    b'offset\x18\x02 \x01(\x03R\x06offset"h\n\x0cGroupOffsets\x12\x1f\n\x0bbroker_name\x18\x01 \x01(\tR\nbroke'
    b'rName\x127\n\x06queues\x18\x02 \x03(\x0b2\x1f.rocketmq.broker.v1.QueueOffsetR\x06queues"\xa3'
    b'\x01\n\x0cCommitOffset\x12\x14\n\x05group\x18\x01 \x01(\tR\x05group\x12\x14\n\x05topic\x18\x02 \x01(\tR\x05topic\x12\x19\n\x08q'
    b'ueue_id\x18\x03 \x01(\x05R\x07queueId\x12\x16\n\x06offset\x18\x04 \x01(\x03R\x06offset\x12$\n\x0bbroker_name\x18\x05 '
    b'\x01(\tH\x00R\nbrokerName\x88\x01\x01B\x0e\n\x0c_broker_name"u\n\x05Await\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05to'
    b'pic\x127\n\x06queues\x18\x02 \x03(\x0b2\x1f.rocketmq.broker.v1.QueueOffsetR\x06queues\x12\x1d\n\n'
    b'timeout_ms\x18\x03 \x01(\x03R\ttimeoutMs"@\n\x06Filter\x12\x14\n\x04tags\x18\x01 \x01(\tH\x00R\x04tags\x12\x12\n\x03s'
    b'ql\x18\x02 \x01(\tH\x00R\x03sqlB\x0c\n\nexpression"\xce\x02\n\x04Pull\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x12\x1f\n\x0b'
    b'broker_name\x18\x02 \x01(\tR\nbrokerName\x12\x19\n\x08queue_id\x18\x03 \x01(\x05R\x07queueId\x12\x14\n\x05star'
    b't\x18\x04 \x01(\x03R\x05start\x12\x10\n\x03end\x18\x05 \x01(\x03R\x03end\x122\n\x06filter\x18\x06 \x01(\x0b2\x1a.rocketmq.brok'
    b'er.v1.FilterR\x06filter\x12\x1d\n\nbatch_rows\x18\x07 \x01(\x03R\tbatchRows\x12\x1f\n\x0bbatch_byt'
    b'es\x18\x08 \x01(\x03R\nbatchBytes\x12\x1b\n\x06verify\x18\t \x01(\x08H\x00R\x06verify\x88\x01\x01\x12\x16\n\x06follow\x18\n \x01('
    b'\x08R\x06follow\x12\x18\n\x07columns\x18\x0b \x03(\tR\x07columnsB\t\n\x07_verify"E\n\x05Query\x12\x14\n\x05topic'
    b'\x18\x01 \x01(\tR\x05topic\x12\x10\n\x03key\x18\x02 \x01(\tR\x03key\x12\x14\n\x05limit\x18\x03 \x01(\x05R\x05limit"*\n\tMessage'
    b'Id\x12\x1d\n\nmessage_id\x18\x01 \x01(\tR\tmessageId"u\n\tRequestId\x12\x16\n\x06client\x18\x01 \x01(\x0cR\x06'
    b'client\x12\x1a\n\x08sequence\x18\x02 \x01(\x04R\x08sequence\x12\x18\n\x07attempt\x18\x03 \x01(\rR\x07attempt\x12\x1a\n\x08'
    b'instance\x18\x04 \x01(\x0cR\x08instance"\xa3\x01\n\nAppendHead\x127\n\x07request\x18\x01 \x01(\x0b2\x1d.rocke'
    b'tmq.broker.v1.RequestIdR\x07request\x12\x14\n\x05flush\x18\x02 \x01(\tR\x05flush\x12\x1f\n\x0btotal_'
    b'bytes\x18\x03 \x01(\x04R\ntotalBytes\x12%\n\x0ewithout_places\x18\x04 \x01(\x08R\rwithoutPlaces"7'
    b'\n\x0cDeleteBefore\x12\'\n\x0fphysical_offset\x18\x01 \x01(\x03R\x0ephysicalOffset"I\n\x05Batch'
    b'\x12\x14\n\x05owner\x18\x01 \x01(\tR\x05owner\x12\x12\n\x04name\x18\x02 \x01(\tR\x04name\x12\x16\n\x06number\x18\x03 \x01(\x03R\x06numb'
    b'er"8\n\x08Prepared\x12\x14\n\x05start\x18\x01 \x01(\x03R\x05start\x12\x10\n\x03end\x18\x02 \x01(\x03R\x03endJ\x04\x08\x03\x10\x04"\x8e\x01\n'
    b'\x07Receipt\x12/\n\x05batch\x18\x01 \x01(\x0b2\x19.rocketmq.broker.v1.BatchR\x05batch\x12\x18\n\x07att'
    b'empt\x18\x02 \x01(\tR\x07attempt\x128\n\x08prepared\x18\x03 \x03(\x0b2\x1c.rocketmq.broker.v1.Prepa'
    b'redR\x08prepared"\xaa\x01\n\x0bPrepareHead\x12/\n\x05batch\x18\x01 \x01(\x0b2\x19.rocketmq.broker.v'
    b'1.BatchR\x05batch\x12\x18\n\x07attempt\x18\x02 \x01(\tR\x07attempt\x12\x19\n\x08is_first\x18\x03 \x01(\x08R\x07isFi'
    b'rst\x12\x14\n\x05flush\x18\x04 \x01(\tR\x05flush\x12\x1f\n\x0btotal_bytes\x18\x05 \x01(\x04R\ntotalBytes"\x9a\x02\n\x06D'
    b'ecide\x12/\n\x05batch\x18\x01 \x01(\x0b2\x19.rocketmq.broker.v1.BatchR\x05batch\x127\n\x08receip'
    b'ts\x18\x02 \x03(\x0b2\x1b.rocketmq.broker.v1.ReceiptR\x08receipts\x12\x10\n\x03run\x18\x03 \x01(\tR\x03ru'
    b'n\x12\x12\n\x04keep\x18\x04 \x01(\x08R\x04keep\x12\x14\n\x05flush\x18\x05 \x01(\tR\x05flush\x12 \n\x0bfingerprint\x18\x06 \x01(\t'
    b'R\x0bfingerprint\x12\x1a\n\x08conflict\x18\x07 \x01(\tR\x08conflict\x12\x1f\n\x08previous\x18\x08 \x01(\x03H\x00R\x08p'
    b'revious\x88\x01\x01B\x0b\n\t_previous"8\n\x07Outcome\x12\x1b\n\tis_repeat\x18\x01 \x01(\x08R\x08isRepeat\x12'
    b'\x10\n\x03run\x18\x02 \x01(\tR\x03run"*\n\tIsDecided\x12\x1d\n\nis_decided\x18\x01 \x01(\x08R\tisDecided"\xb8\x02'
    b'\n\x0ePrepareMessage\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x12\x12\n\x04body\x18\x02 \x01(\x0cR\x04body\x12\x14\n\x05gr'
    b'oup\x18\x03 \x01(\tR\x05group\x12\x12\n\x04tags\x18\x04 \x01(\tR\x04tags\x12\x12\n\x04keys\x18\x05 \x03(\tR\x04keys\x12R\n\nprop'
    b'erties\x18\x06 \x03(\x0b22.rocketmq.broker.v1.PrepareMessage.PropertiesEntry'
    b'R\nproperties\x12\x1e\n\x08queue_id\x18\x07 \x01(\x05H\x00R\x07queueId\x88\x01\x01\x1a=\n\x0fPropertiesEntry\x12'
    b'\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12\x14\n\x05value\x18\x02 \x01(\tR\x05value:\x028\x01B\x0b\n\t_queue_id"\xcb\x01\n\x0bHal'
    b'fMessage\x12\x14\n\x05topic\x18\x01 \x01(\tR\x05topic\x12\x19\n\x08queue_id\x18\x02 \x01(\x05R\x07queueId\x12%\n\x0etra'
    b'nsaction_id\x18\x03 \x01(\tR\rtransactionId\x12\x14\n\x05group\x18\x04 \x01(\tR\x05group\x12\x1f\n\x0bhalf_o'
    b"ffset\x18\x05 \x01(\x03R\nhalfOffset\x12'\n\x0fphysical_offset\x18\x06 \x01(\x03R\x0ephysicalOffset"
    b'J\x04\x08\x07\x10\x08"N\n\x03End\x123\n\x04half\x18\x01 \x01(\x0b2\x1f.rocketmq.broker.v1.HalfMessageR\x04ha'
    b'lf\x12\x12\n\x04fate\x18\x02 \x01(\tR\x04fate"\x1e\n\x06Listen\x12\x14\n\x05group\x18\x01 \x01(\tR\x05group"\xe0\x01\n\x08Quest'
    b'ion\x123\n\x04half\x18\x01 \x01(\x0b2\x1f.rocketmq.broker.v1.HalfMessageR\x04half\x12\x12\n\x04body'
    b'\x18\x02 \x01(\x0cR\x04body\x12L\n\nproperties\x18\x03 \x03(\x0b2,.rocketmq.broker.v1.Question.P'
    b'ropertiesEntryR\nproperties\x1a=\n\x0fPropertiesEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12'
    b'\x14\n\x05value\x18\x02 \x01(\tR\x05value:\x028\x01"\x99\x01\n\x0fCheckBackReport\x12\x18\n\x07waiting\x18\x01 \x01(\x03R\x07'
    b'waiting\x12\x1a\n\x08finished\x18\x02 \x01(\x03R\x08finished\x12\x1f\n\x0brolled_back\x18\x03 \x01(\x03R\nrolled'
    b'Back\x12\x14\n\x05asked\x18\x04 \x01(\x03R\x05asked\x12\x19\n\x08given_up\x18\x05 \x01(\x03R\x07givenUp"s\n\x0bErrorDe'
    b'tail\x12\x1c\n\tcondition\x18\x01 \x01(\tR\tcondition\x12\x18\n\x07message\x18\x02 \x01(\tR\x07message\x12\x18\n\x07'
    b'numbers\x18\x03 \x03(\x03R\x07numbers\x12\x12\n\x04path\x18\x04 \x01(\tR\x04pathb\x06proto3'
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
Stats = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.Stats")
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
Batch = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.Batch")
)
Prepared = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.Prepared")
)
Receipt = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.Receipt")
)
PrepareHead = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.PrepareHead")
)
Decide = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.Decide")
)
Outcome = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.Outcome")
)
IsDecided = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.IsDecided")
)
PrepareMessage = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.PrepareMessage")
)
HalfMessage = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.HalfMessage")
)
End = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.End")
)
Listen = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.Listen")
)
Question = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.Question")
)
CheckBackReport = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.CheckBackReport")
)
ErrorDetail = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("rocketmq.broker.v1.ErrorDetail")
)
