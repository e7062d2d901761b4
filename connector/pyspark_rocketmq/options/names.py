"""The spelling of every option and setting that messages mention; no other module spells one.

The option table (options/table.py) and the error catalogue (conditions.py) both take the names from
here, so a message can't name an option that does not exist.
"""

from __future__ import annotations

from typing import Final

# Which broker, and how to reach it
BROKER: Final = "broker"
ACCESS_KEY: Final = "accessKey"
SECRET_KEY: Final = "secretKey"  # noqa: S105 - the option's name, not a secret
SECURITY_TOKEN: Final = "securityToken"  # noqa: S105 - the option's name, not a secret
TOKEN: Final = "token"  # noqa: S105 - the option's name, not a secret
TLS_CA: Final = "tls.ca"
TLS_CERT: Final = "tls.cert"
TLS_KEY: Final = "tls.key"
TLS_SERVER_NAME: Final = "tls.serverName"

# Which queues
SUBSCRIBE: Final = "subscribe"
TOPIC: Final = "topic"
SUBSCRIBE_PATTERN: Final = "subscribePattern"
ASSIGN: Final = "assign"

# Which messages of them
STARTING_OFFSETS: Final = "startingOffsets"
STARTING_TIMESTAMP: Final = "startingTimestamp"
STARTING_OFFSETS_BY_TIMESTAMP: Final = "startingOffsetsByTimestamp"
STARTING_OFFSETS_BY_TIMESTAMP_STRATEGY: Final = "startingOffsetsByTimestampStrategy"
ENDING_OFFSETS: Final = "endingOffsets"
ENDING_TIMESTAMP: Final = "endingTimestamp"
ENDING_OFFSETS_BY_TIMESTAMP: Final = "endingOffsetsByTimestamp"
TAGS: Final = "tags"
SQL: Final = "sql"
FAIL_ON_DATA_LOSS: Final = "failOnDataLoss"
SKIP_CORRUPT: Final = "skipCorrupt"

# What of them
COLUMNS: Final = "columns"
INCLUDE_PROPERTIES: Final = "includeProperties"

# How much at once
MAX_OFFSETS_PER_TRIGGER: Final = "maxOffsetsPerTrigger"
MIN_OFFSETS_PER_TRIGGER: Final = "minOffsetsPerTrigger"
MAX_TRIGGER_DELAY: Final = "maxTriggerDelay"
MAX_BYTES_PER_TRIGGER: Final = "maxBytesPerTrigger"
MIN_PARTITIONS: Final = "minPartitions"
MAX_RECORDS_PER_PARTITION: Final = "maxRecordsPerPartition"
BATCH_ROWS: Final = "batchRows"
FILTER_PUSHDOWN: Final = "filterPushdown"

# Talking to the broker
FETCH_RETRIES: Final = "fetchOffset.numRetries"
FETCH_INTERVAL: Final = "fetchOffset.retryIntervalMs"
PULL_TIMEOUT: Final = "pullTimeoutMs"
CONSUMER_GROUP: Final = "consumerGroup"
COMMIT_OFFSETS: Final = "commitOffsets"

# Writing
DELIVERY: Final = "delivery"
TXN_NAME: Final = "txnName"
TXN_ID: Final = "txnId"
COMPRESSION: Final = "compression"
COMPRESSION_THRESHOLD: Final = "compressionThreshold"
CREATE_TOPIC: Final = "createTopic"
PRODUCER_GROUP: Final = "producerGroup"
FLUSH: Final = "flush"
ON_CONFLICT: Final = "onConflict"
ALLOW_GAP: Final = "allowGap"
MAX_MESSAGE_SIZE: Final = "maxMessageSize"

# Spark's own option of a streaming query, which the sink reads
CHECKPOINT: Final = "checkpointLocation"

# Spark's own switch for filter pushdown in Python sources
SPARK_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
