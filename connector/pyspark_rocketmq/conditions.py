"""The catalogue of error conditions: every error of the connector, as data.

A condition is `CLASS.SUBCLASS` in UPPER_SNAKE, has an SQLSTATE and a sentence with parameters.
Conditions are sorted, unique, and never renamed once released: people search for them. The modules
of pyspark_rocketmq/errors have one function per condition; no other code fills in a sentence.
docs/conditions.md and docs/troubleshooting.md are generated from here (tools/).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_rocketmq.options import names


@dataclass(frozen=True, slots=True)
class Condition:
    """One way to fail: its SQLSTATE and the sentence that the user reads."""

    sqlstate: str
    message: str


_TOLERATE = f"Set {names.FAIL_ON_DATA_LOSS}=false to"
_RESTART = "This may be transient: restart the query."

CATALOGUE: dict[str, Condition] = {
    "ROCKETMQ_AVAILABLE_NOW.END_AFTER_LATEST": Condition(
        "22000",
        "Queue {queue} now ends at {latest}, before the end {end} that this AvailableNow run "
        f"planned; messages were lost or the topic was created anew. {_RESTART}",
    ),
    "ROCKETMQ_AVAILABLE_NOW.END_AFTER_TARGET": Condition(
        "22000",
        "Queue {queue} was to be read to {end}, after the target {target} that this AvailableNow "
        f"run took at its start. {_RESTART}",
    ),
    "ROCKETMQ_AVAILABLE_NOW.QUEUES_DIFFER": Condition(
        "22000",
        "The planned end names the queues {end}, but this AvailableNow run took its target for "
        f"{{target}}. {_RESTART}",
    ),
    "ROCKETMQ_AVAILABLE_NOW.QUEUES_LOST": Condition(
        "22000",
        "The queues {queues} vanished while this AvailableNow run had still to read them. "
        f"{_RESTART}",
    ),
    "ROCKETMQ_BROKER.FAILED": Condition("58000", "{broker} could not {action}: {reason}"),
    "ROCKETMQ_BROKER.STORE_DAMAGED": Condition(
        "58030",
        "{broker} could not {action}, because the store is damaged: {reason} "
        "`rocketmq-broker check` lists all damage.",
    ),
    "ROCKETMQ_BROKER.UNAVAILABLE": Condition(
        "08006",
        "{broker} could not {action} in {attempts} attempts: {reason}",
    ),
    "ROCKETMQ_BROKER.UNSUPPORTED": Condition("0A000", "{broker} can't {action}: {reason}"),
    "ROCKETMQ_CHECKPOINT.MALFORMED": Condition(
        "22032",
        "The checkpoint holds an offset that this source can't have written: {text}. Expected the "
        'form {{"topic":{{"broker-a":{{"0":23}}}}}}; point the query at its own checkpoint.',
    ),
    "ROCKETMQ_DATA_LOSS.FIRST_START_UNKNOWN": Condition(
        "22000",
        "The first batch was logged by an earlier version, which did not log where it began. With "
        "these options it begins at {start} in queue {queue}, so {count} messages before that "
        "would not be read. Start with the options of the first time, or with a new checkpoint. "
        f"{_TOLERATE} begin at {{start}}.",
    ),
    "ROCKETMQ_DATA_LOSS.NEW_QUEUE_STARTS_LATE": Condition(
        "22000",
        "Queue {queue} is new to this query but starts at {earliest} instead of 0; {lost} messages "
        f"may be gone. {_TOLERATE} read it from {{earliest}}.",
    ),
    "ROCKETMQ_DATA_LOSS.OFFSET_EXPIRED": Condition(
        "22000",
        "Queue {queue} starts at {earliest}, but {start} is needed; {lost} messages are gone. "
        f"{_TOLERATE} continue from {{earliest}}.",
    ),
    "ROCKETMQ_DATA_LOSS.OFFSET_NOT_REACHED": Condition(
        "22000",
        "Queue {queue} ends at {latest}, but messages up to {end} were planned; the topic was cut "
        f"or created anew. {_TOLERATE} stop at {{latest}}.",
    ),
    "ROCKETMQ_DATA_LOSS.OFFSET_WENT_BACK": Condition(
        "22000",
        "Queue {queue} ends at {end}, but was already read to {start}; the topic was cut or "
        f"created anew. {_TOLERATE} continue from {{end}} (messages before it are not read).",
    ),
    "ROCKETMQ_DATA_LOSS.QUEUES_DELETED": Condition(
        "22000",
        "The queues {queues} are gone; messages that were not read yet are lost. "
        f"{_TOLERATE} continue without them.",
    ),
    "ROCKETMQ_DATA_LOSS.QUEUES_NOT_SUBSCRIBED": Condition(
        "22000",
        "The queues {queues} exist, but the query does not subscribe to them any more. Correct "
        f"{names.SUBSCRIBE}, {names.SUBSCRIBE_PATTERN} or {names.ASSIGN} to go on as before. "
        f"{_TOLERATE} continue without them; their offsets are kept.",
    ),
    "ROCKETMQ_DATA_LOSS.QUEUE_START_UNKNOWN": Condition(
        "22000",
        "Queue {queue} is new to this query and vanished before its first offset was known. "
        f"{_TOLERATE} leave it out of this batch.",
    ),
    "ROCKETMQ_OFFSETS.AMBIGUOUS_BROKER": Condition(
        "22023",
        "{option} names topic {topic} without a broker, but it lives on {brokers}. Write "
        '{{"{topic}":{{"{broker}":{{"0":23}}}}}}.',
    ),
    "ROCKETMQ_OFFSETS.END_IS_EARLIEST": Condition(
        "22023",
        "{option} is earliest (-2){where}, but a read can't end there. "
        "Use latest (-1) or a number.",
    ),
    "ROCKETMQ_OFFSETS.NOT_THE_ASSIGNED_QUEUES": Condition(
        "22023",
        "{option} must name exactly the queues that are read. Missing: {missing}; not read: "
        "{extra}. Use -2 (earliest) or -1 (latest) for queues you do not care about.",
    ),
    "ROCKETMQ_OFFSETS.QUEUES_DIFFER": Condition(
        "22023",
        "{starting} and {ending} must name the same queues. Only in {starting}: {only_start}; only "
        "in {ending}: {only_end}.",
    ),
    "ROCKETMQ_OFFSETS.RESOLVED_START_AFTER_END": Condition(
        "22023",
        "Queue {queue} would be read from {start} to {end}: its end is before its start. The start "
        "may be after the last message, an offset may be mixed with a timestamp, or the topic was "
        "created anew.",
    ),
    "ROCKETMQ_OFFSETS.START_AFTER_END": Condition(
        "22023",
        "{starting} is {start} and {ending} is {end} for {where}: the start must not be after the "
        "end.",
    ),
    "ROCKETMQ_OFFSETS.START_IS_LATEST": Condition(
        "22023",
        "{option} is latest (-1){where}, but a batch read can't start there: nothing would be "
        "read. Use earliest (-2), a number or a timestamp.",
    ),
    "ROCKETMQ_OFFSETS.TIMESTAMP_NOT_FOUND": Condition(
        "22023",
        "Queue {queue} has no message stored at or after {timestamp_ms} ms. Set {strategy}=latest "
        "to start such a queue at its end.",
    ),
    "ROCKETMQ_OPTION.CONFLICT": Condition(
        "42616", "Options {names} can't be combined: {reason} Keep one of them."
    ),
    "ROCKETMQ_OPTION.EMPTY": Condition(
        "42616", "Option {name} is '{value}', which is empty. Expected {expected}."
    ),
    "ROCKETMQ_OPTION.INVALID": Condition(
        "42616", "Option {name} is '{value}'. Expected {expected}, for example {example}."
    ),
    "ROCKETMQ_OPTION.INVALID_ADDRESS": Condition("42616", "Option {name}: {reason}"),
    "ROCKETMQ_OPTION.INVALID_FILTER": Condition(
        "42601", "Option {name} does not compile: {reason}"
    ),
    "ROCKETMQ_OPTION.MIN_ABOVE_MAX": Condition(
        "42616",
        "Option {min_name} is {minimum}, more than {max_name}, which is {maximum}. Lower the "
        "one or raise the other.",
    ),
    "ROCKETMQ_OPTION.MISSING": Condition(
        "42616", "Option {name} is required: {purpose} Example: {example}."
    ),
    "ROCKETMQ_OPTION.NOT_IN_STREAM": Condition(
        "42616",
        "Option {name} is not valid in a streaming query, which has no end. Remove it, or use "
        "spark.read.",
    ),
    "ROCKETMQ_OPTION.NO_STRATEGY": Condition(
        "42616",
        "No topic is chosen. One of the options {names} must be given, for example {example}.",
    ),
    "ROCKETMQ_OPTION.SEVERAL_STRATEGIES": Condition(
        "42616",
        "Only one of the options {names} can be given, but there are {given}. Keep one.",
    ),
    "ROCKETMQ_SCHEMA.DIFFERS": Condition(
        "42K09",
        "The schema given to the reader is not the source's: {difference}. Drop .schema(...), and "
        "choose columns with the option {columns}.",
    ),
    "ROCKETMQ_SCHEMA.DUPLICATE_COLUMN": Condition(
        "42711", "Option {columns} yields two columns named '{column}'. Keep one."
    ),
    "ROCKETMQ_SCHEMA.UNKNOWN_COLUMN": Condition(
        "42703", "Option {columns} names '{column}', which is no column.{hint} Known: {known}."
    ),
    "ROCKETMQ_SINK.BATCH_CONFLICT": Condition(
        "40002",
        "{batch}{checkpoint} can't be taken for the batch that was written under this number: "
        "{reason} The checkpoint was restored or copied, the query makes its rows anew each time "
        "(uuid, rand, times, sums of floating-point numbers, collected lists), or the broker has "
        "forgotten a batch of long ago. Nothing of this batch was written. Set "
        "{option}=repeat to leave such batches out, {option}=write to write them, or begin with a "
        "new checkpoint or another {txn_id}.",
    ),
    "ROCKETMQ_SINK.BATCH_GAP": Condition(
        "40002",
        "{batch}{checkpoint} can't follow what {broker} holds: {reason} The store is older than "
        "the checkpoint, the query wrote elsewhere before, or all of its batches so far were empty "
        "and written by an earlier version. Nothing of this batch was written. "
        "Set {option}=true to go on from here, or restore store and checkpoint together.",
    ),
    "ROCKETMQ_SINK.BATCH_UNKNOWN": Condition(
        "0A000",
        "A foreachBatch writes {where}, where the sink is not told query and batch: a replay "
        "would write the rows again. Nothing was written. Add {line} to the write{thread}.",
    ),
    "ROCKETMQ_SINK.BODY_TOO_LARGE": Condition(
        "22001",
        "A row for topic {topic} has a body of {size} bytes; the limit is {limit} ({option}). "
        "Nothing of this batch is visible.",
    ),
    "ROCKETMQ_SINK.COLUMN_MISSING": Condition(
        "42703", "The sink needs a column '{column}': {purpose} The DataFrame has {found}."
    ),
    "ROCKETMQ_SINK.COLUMN_TWICE": Condition(
        "42711",
        "The sink takes column '{column}' or its alias '{alias}', but there are both. Keep one.",
    ),
    "ROCKETMQ_SINK.COLUMN_TYPE": Condition(
        "42K09", "Column '{column}' is {found}, but the sink takes {expected}. Cast it."
    ),
    "ROCKETMQ_SINK.DELAY_LEVEL": Condition(
        "22023",
        "A row for topic {topic} has delayLevel {level}; levels are 1 to {levels}, null or 0 for "
        "no delay. Nothing of this batch is visible.",
    ),
    "ROCKETMQ_SINK.EMPTY_BODY": Condition(
        "22004",
        "A row for topic {topic} has no body, null or empty, which RocketMQ's clients refuse. "
        "Filter such rows out. Nothing of this batch is visible.",
    ),
    "ROCKETMQ_SINK.EXACTLY_ONCE_UNSUPPORTED": Condition(
        "0A000",
        "{broker} can't write exactly once: {reason} Set {option}=at-least-once.",
    ),
    "ROCKETMQ_SINK.ILLEGAL_TEXT": Condition(
        "22023",
        "A row for topic {topic} has {what} '{text}', which {why}. Nothing of this batch is "
        "visible.",
    ),
    "ROCKETMQ_SINK.NULL_TOPIC": Condition(
        "22004",
        "A row has no topic. Fill the column 'topic', or set the option {option} for all rows. "
        "Nothing of this batch is visible.",
    ),
    "ROCKETMQ_SINK.OVERWRITE": Condition(
        "0A000",
        "Mode overwrite is not supported: a topic can only be appended to. Use .mode('append').",
    ),
    "ROCKETMQ_SINK.OWN_TOPIC": Condition(
        "42501",
        "{where} has topic {topic}, which is one of the broker's own: it alone writes there. "
        "Choose another topic. Nothing of this batch is visible.",
    ),
    "ROCKETMQ_SINK.QUEUE_OUT_OF_RANGE": Condition(
        "22003",
        "A row for topic {topic} has queueId {queue_id}, but the topic has {count} queues to write "
        "to, numbered from 0. Nothing of this batch is visible.",
    ),
    "ROCKETMQ_SINK.RESERVED_PROPERTY": Condition(
        "22023",
        "A row for topic {topic} has the property {name}, which RocketMQ keeps for itself. Rename "
        "it{hint}. Nothing of this batch is visible.",
    ),
    "ROCKETMQ_SINK.TOPIC_MISSING": Condition(
        "42704",
        "Topic {topic} does not exist on {broker}. Create it, or set {option} to the number of "
        "queues it should have. Nothing of this batch is visible.",
    ),
    "ROCKETMQ_SINK.WRITTEN_TWICE": Condition(
        "42710",
        "{batch} was already written in this run: one foreachBatch has two writes that the sink "
        "can't tell apart, and the rows of the second were not written. Give each of them its own "
        "{option}.",
    ),
    "ROCKETMQ_TOPIC_NOT_FOUND": Condition(
        "42704",
        "Topic {topic} does not exist on {broker}. Create it, or correct the option {option}.",
    ),
}
