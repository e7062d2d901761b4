# mypy: disable-error-code=type-arg
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HelloRequest(_message.Message):
    __slots__ = ("protocol", "client")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    client: str
    def __init__(self, protocol: _Optional[int] = ..., client: _Optional[str] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("protocol", "server", "broker_name", "instance", "store_host", "message_bytes", "chunk_bytes", "append_bytes", "delay_levels", "creates_topics")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    STORE_HOST_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    APPEND_BYTES_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVELS_FIELD_NUMBER: _ClassVar[int]
    CREATES_TOPICS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    server: str
    broker_name: str
    instance: bytes
    store_host: bytes
    message_bytes: int
    chunk_bytes: int
    append_bytes: int
    delay_levels: int
    creates_topics: bool
    def __init__(self, protocol: _Optional[int] = ..., server: _Optional[str] = ..., broker_name: _Optional[str] = ..., instance: _Optional[bytes] = ..., store_host: _Optional[bytes] = ..., message_bytes: _Optional[int] = ..., chunk_bytes: _Optional[int] = ..., append_bytes: _Optional[int] = ..., delay_levels: _Optional[int] = ..., creates_topics: _Optional[bool] = ...) -> None: ...

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Stats(_message.Message):
    __slots__ = ("store", "numbers")
    class NumbersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    STORE_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    store: str
    numbers: _containers.ScalarMap[str, int]
    def __init__(self, store: _Optional[str] = ..., numbers: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class TopicList(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateTopic(_message.Message):
    __slots__ = ("topic", "queues", "exist_ok", "for_sending")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    EXIST_OK_FIELD_NUMBER: _ClassVar[int]
    FOR_SENDING_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queues: int
    exist_ok: bool
    for_sending: bool
    def __init__(self, topic: _Optional[str] = ..., queues: _Optional[int] = ..., exist_ok: _Optional[bool] = ..., for_sending: _Optional[bool] = ...) -> None: ...

class AddQueues(_message.Message):
    __slots__ = ("topic", "total")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    topic: str
    total: int
    def __init__(self, topic: _Optional[str] = ..., total: _Optional[int] = ...) -> None: ...

class TopicInfo(_message.Message):
    __slots__ = ("topic", "broker_name", "read_queues", "write_queues", "perm", "queue_ids", "attributes")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUES_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUES_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    broker_name: str
    read_queues: int
    write_queues: int
    perm: int
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    attributes: _containers.ScalarMap[str, str]
    def __init__(self, topic: _Optional[str] = ..., broker_name: _Optional[str] = ..., read_queues: _Optional[int] = ..., write_queues: _Optional[int] = ..., perm: _Optional[int] = ..., queue_ids: _Optional[_Iterable[int]] = ..., attributes: _Optional[_Mapping[str, str]] = ...) -> None: ...

class QueueBounds(_message.Message):
    __slots__ = ("queue_id", "minimum", "maximum")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    minimum: int
    maximum: int
    def __init__(self, queue_id: _Optional[int] = ..., minimum: _Optional[int] = ..., maximum: _Optional[int] = ...) -> None: ...

class TopicBounds(_message.Message):
    __slots__ = ("broker_name", "queues")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    queues: _containers.RepeatedCompositeFieldContainer[QueueBounds]
    def __init__(self, broker_name: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[QueueBounds, _Mapping]]] = ...) -> None: ...

class OffsetAt(_message.Message):
    __slots__ = ("topic", "queue_id", "timestamp_ms", "broker_name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    timestamp_ms: int
    broker_name: str
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., broker_name: _Optional[str] = ...) -> None: ...

class Offset(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("group", "topic")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class QueueOffset(_message.Message):
    __slots__ = ("queue_id", "offset")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    offset: int
    def __init__(self, queue_id: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class GroupOffsets(_message.Message):
    __slots__ = ("broker_name", "queues")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    queues: _containers.RepeatedCompositeFieldContainer[QueueOffset]
    def __init__(self, broker_name: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[QueueOffset, _Mapping]]] = ...) -> None: ...

class CommitOffset(_message.Message):
    __slots__ = ("group", "topic", "queue_id", "offset", "broker_name")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_id: int
    offset: int
    broker_name: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., broker_name: _Optional[str] = ...) -> None: ...

class Await(_message.Message):
    __slots__ = ("topic", "queues", "timeout_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queues: _containers.RepeatedCompositeFieldContainer[QueueOffset]
    timeout_ms: int
    def __init__(self, topic: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[QueueOffset, _Mapping]]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class Filter(_message.Message):
    __slots__ = ("tags", "sql")
    TAGS_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    tags: str
    sql: str
    def __init__(self, tags: _Optional[str] = ..., sql: _Optional[str] = ...) -> None: ...

class Pull(_message.Message):
    __slots__ = ("topic", "broker_name", "queue_id", "start", "end", "filter", "batch_rows", "batch_bytes", "verify", "follow", "columns")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    VERIFY_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int
    filter: Filter
    batch_rows: int
    batch_bytes: int
    verify: bool
    follow: bool
    columns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., broker_name: _Optional[str] = ..., queue_id: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., batch_rows: _Optional[int] = ..., batch_bytes: _Optional[int] = ..., verify: _Optional[bool] = ..., follow: _Optional[bool] = ..., columns: _Optional[_Iterable[str]] = ...) -> None: ...

class Query(_message.Message):
    __slots__ = ("topic", "key", "limit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: str
    limit: int
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class MessageId(_message.Message):
    __slots__ = ("message_id",)
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    def __init__(self, message_id: _Optional[str] = ...) -> None: ...

class RequestId(_message.Message):
    __slots__ = ("client", "sequence", "attempt", "instance")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    client: bytes
    sequence: int
    attempt: int
    instance: bytes
    def __init__(self, client: _Optional[bytes] = ..., sequence: _Optional[int] = ..., attempt: _Optional[int] = ..., instance: _Optional[bytes] = ...) -> None: ...

class AppendHead(_message.Message):
    __slots__ = ("request", "flush", "total_bytes", "without_places")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_PLACES_FIELD_NUMBER: _ClassVar[int]
    request: RequestId
    flush: str
    total_bytes: int
    without_places: bool
    def __init__(self, request: _Optional[_Union[RequestId, _Mapping]] = ..., flush: _Optional[str] = ..., total_bytes: _Optional[int] = ..., without_places: _Optional[bool] = ...) -> None: ...

class DeleteBefore(_message.Message):
    __slots__ = ("physical_offset",)
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    physical_offset: int
    def __init__(self, physical_offset: _Optional[int] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("owner", "name", "number")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    owner: str
    name: str
    number: int
    def __init__(self, owner: _Optional[str] = ..., name: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class Prepared(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("batch", "attempt", "prepared")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    batch: Batch
    attempt: str
    prepared: _containers.RepeatedCompositeFieldContainer[Prepared]
    def __init__(self, batch: _Optional[_Union[Batch, _Mapping]] = ..., attempt: _Optional[str] = ..., prepared: _Optional[_Iterable[_Union[Prepared, _Mapping]]] = ...) -> None: ...

class PrepareHead(_message.Message):
    __slots__ = ("batch", "attempt", "is_first", "flush", "total_bytes")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    IS_FIRST_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    batch: Batch
    attempt: str
    is_first: bool
    flush: str
    total_bytes: int
    def __init__(self, batch: _Optional[_Union[Batch, _Mapping]] = ..., attempt: _Optional[str] = ..., is_first: _Optional[bool] = ..., flush: _Optional[str] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class Decide(_message.Message):
    __slots__ = ("batch", "receipts", "run", "keep", "flush", "fingerprint", "conflict", "previous")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    batch: Batch
    receipts: _containers.RepeatedCompositeFieldContainer[Receipt]
    run: str
    keep: bool
    flush: str
    fingerprint: str
    conflict: str
    previous: int
    def __init__(self, batch: _Optional[_Union[Batch, _Mapping]] = ..., receipts: _Optional[_Iterable[_Union[Receipt, _Mapping]]] = ..., run: _Optional[str] = ..., keep: _Optional[bool] = ..., flush: _Optional[str] = ..., fingerprint: _Optional[str] = ..., conflict: _Optional[str] = ..., previous: _Optional[int] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("is_repeat", "run")
    IS_REPEAT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    is_repeat: bool
    run: str
    def __init__(self, is_repeat: _Optional[bool] = ..., run: _Optional[str] = ...) -> None: ...

class IsDecided(_message.Message):
    __slots__ = ("is_decided",)
    IS_DECIDED_FIELD_NUMBER: _ClassVar[int]
    is_decided: bool
    def __init__(self, is_decided: _Optional[bool] = ...) -> None: ...

class PrepareMessage(_message.Message):
    __slots__ = ("topic", "body", "group", "tags", "keys", "properties", "queue_id")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    body: bytes
    group: str
    tags: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    properties: _containers.ScalarMap[str, str]
    queue_id: int
    def __init__(self, topic: _Optional[str] = ..., body: _Optional[bytes] = ..., group: _Optional[str] = ..., tags: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., properties: _Optional[_Mapping[str, str]] = ..., queue_id: _Optional[int] = ...) -> None: ...

class HalfMessage(_message.Message):
    __slots__ = ("topic", "queue_id", "transaction_id", "group", "half_offset", "physical_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    HALF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    transaction_id: str
    group: str
    half_offset: int
    physical_offset: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., transaction_id: _Optional[str] = ..., group: _Optional[str] = ..., half_offset: _Optional[int] = ..., physical_offset: _Optional[int] = ...) -> None: ...

class End(_message.Message):
    __slots__ = ("half", "fate")
    HALF_FIELD_NUMBER: _ClassVar[int]
    FATE_FIELD_NUMBER: _ClassVar[int]
    half: HalfMessage
    fate: str
    def __init__(self, half: _Optional[_Union[HalfMessage, _Mapping]] = ..., fate: _Optional[str] = ...) -> None: ...

class Listen(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class Question(_message.Message):
    __slots__ = ("half", "body", "properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    HALF_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    half: HalfMessage
    body: bytes
    properties: _containers.ScalarMap[str, str]
    def __init__(self, half: _Optional[_Union[HalfMessage, _Mapping]] = ..., body: _Optional[bytes] = ..., properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CheckBackReport(_message.Message):
    __slots__ = ("waiting", "finished", "rolled_back", "asked", "given_up")
    WAITING_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    waiting: int
    finished: int
    rolled_back: int
    asked: int
    given_up: int
    def __init__(self, waiting: _Optional[int] = ..., finished: _Optional[int] = ..., rolled_back: _Optional[int] = ..., asked: _Optional[int] = ..., given_up: _Optional[int] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("condition", "message", "numbers", "path")
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    condition: str
    message: str
    numbers: _containers.RepeatedScalarFieldContainer[int]
    path: str
    def __init__(self, condition: _Optional[str] = ..., message: _Optional[str] = ..., numbers: _Optional[_Iterable[int]] = ..., path: _Optional[str] = ...) -> None: ...
