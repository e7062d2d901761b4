"""RocketMQ's own names: properties it stores beside the user's, and topics it keeps for itself."""

from __future__ import annotations

import re

TAGS = "TAGS"
KEYS = "KEYS"
UNIQ_KEY = "UNIQ_KEY"
WAIT = "WAIT"
DELAY = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY_TIME = "CHECK_IMMUNITY_TIME_IN_SECONDS"
HALF_BLOCK = "HALF_BLOCK"
"""Ours: the number of messages in a half block (broker/transactions/half_blocks.py)."""
PREPARED_BY = "PREPARED_BY"
"""Ours: the user who prepared a half message (broker/transactions/ownership.py)."""
CLUSTER = "CLUSTER"
SHARDING_KEY = "__SHARDINGKEY"
PROPERTY_CRC = "__CRC32#"

KEY_SEPARATOR = " "
NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
UNSTORABLE = re.compile("[\x00-\x02]")
"""No name and no value has these. Separators would end an entry; zeros are what a lost sector reads
as, and recovery tells by them that a record lost some of its properties (store/log/scan.py)."""

RESERVED_PROPERTIES = frozenset(
    """
    KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET
    BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION
    TRACE_ON UNIQ_KEY EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME POP_CK POP_CK_OFFSET
    1ST_POP_TIME DUP_INFO TRAN_PREPARED_QUEUE_OFFSET INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL
    ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_MS
    TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES
    TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP DLQ_ORIGIN_TOPIC
    DLQ_ORIGIN_MESSAGE_ID __CRC32# __SHARDINGKEY INNER_NUM INNER_BASE INNER_MULTI_DISPATCH
    TRACE_CONTEXT __transactionId__ TRANSACTION_CHECK_TIMES CHECK_IMMUNITY_TIME_IN_SECONDS REDIRECT
    HALF_BLOCK PREPARED_BY
    """.split()
)
"""No user property has these names: RocketMQ's clients refuse them, or its broker acts on them."""

OWN_PROPERTIES = frozenset(
    """
    HALF_BLOCK PREPARED_BY REAL_TOPIC REAL_QID TRANSACTION_CHECK_TIMES TRAN_PREPARED_QUEUE_OFFSET
    __transactionId__ POP_CK POP_CK_OFFSET TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES
    TIMER_OUT_MS INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET __CRC32#
    """.split()
)
"""Properties that the broker itself sets and believes: no client may send them. The only exception
are REAL_TOPIC and REAL_QID of a delayed message (broker/admission/delayed.py)."""

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
BATCH_TOPIC = "RMQ_SYS_TRANS_BATCH_TOPIC"
DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"

SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        "SELF_TEST_TOPIC",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        BATCH_TOPIC,
        DISCARD_TOPIC,
    }
)
SYSTEM_PREFIXES = (RETRY_PREFIX, DEAD_LETTER_PREFIX, "RMQ_SYS_", "rmq_sys_")

DELAY_LEVELS_SECONDS = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip
"""Delay of level 1, 2, ...: RocketMQ's default `messageDelayLevel`."""


def is_system_topic(topic: str) -> bool:
    """Tell whether RocketMQ keeps this topic for itself, so that no pattern should match it."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIXES)
