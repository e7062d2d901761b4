"""Headers of the requests about topics, offsets and single messages, and what their answers hold.

Requests that fill a file of their own are elsewhere: PULL_MESSAGE in pull_message.py, SEND_MESSAGE
in send_message.py, the questions to name servers in route.py. JSON and records are bodies.

    request                                fields                                       answer
    UPDATE_AND_CREATE_TOPIC                topic defaultTopic readQueueNums             -
                                           writeQueueNums perm topicFilterType
                                           topicSysFlag order
    DELETE_TOPIC_IN_BROKER                 topic                                        -
    GET_TOPIC_STATS_INFO                   topic                                        JSON
    UPDATE_AND_CREATE_SUBSCRIPTION_GROUP   - (body: JSON with groupName)                -
    GET_MIN_OFFSET, GET_MAX_OFFSET         topic queueId bname                          offset
    SEARCH_OFFSET_BY_TIMESTAMP             topic queueId bname timestamp boundaryType   offset
    QUERY_CONSUMER_OFFSET                  consumerGroup topic queueId bname            offset
                                           setZeroIfNotFound
    UPDATE_CONSUMER_OFFSET                 consumerGroup topic queueId bname            -
                                           commitOffset
    GET_ALL_CONSUMER_OFFSET                -                                            JSON
    QUERY_MESSAGE                          topic key maxNum beginTimestamp              records
                                           endTimestamp bname
    VIEW_MESSAGE_BY_ID                     offset (physical)                            record

`bname` names the broker, for a proxy in between. Brokers answer offset questions about queues that
do not exist with 0 and SUCCESS.
"""

from __future__ import annotations

import json

from broker_core.types import LogicalOffset, PhysicalOffset, QueueRef
from broker_core.wire.remoting.command import (
    TEMPLATE_TOPIC,
    Body,
    Command,
    Request,
    RequestCode,
)
from broker_core.wire.remoting.lenient_json import parse_json

_PERM_ALL = 6
_FOREVER_MS = (1 << 63) - 1


# Topics and groups


def create_topic_request(topic: str, queues: int) -> Request:
    """Return the request that makes a topic, or lets it have `queues` queues, on one broker."""
    return Request(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {
            "topic": topic,
            "defaultTopic": TEMPLATE_TOPIC,
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(_PERM_ALL),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        },
    )


def delete_topic_request(topic: str) -> Request:
    """Return the request that deletes a topic on one broker."""
    return Request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})


def topic_stats_request(topic: str) -> Request:
    """Return the question for a topic's statistics; TOPIC_NOT_EXIST if a broker has it not."""
    return Request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})


def create_group_request(group: str) -> Request:
    """Return the request that makes a consumer group with RocketMQ's default settings."""
    body = json.dumps({"groupName": group}).encode()
    return Request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP, {}, body)


# Offsets


def min_offset_request(queue: QueueRef) -> Request:
    """Return the question for a queue's first offset."""
    return Request(RequestCode.GET_MIN_OFFSET, _queue_fields(queue))


def max_offset_request(queue: QueueRef) -> Request:
    """Return the question for the offset behind a queue's last message."""
    return Request(RequestCode.GET_MAX_OFFSET, _queue_fields(queue))


def search_offset_request(queue: QueueRef, timestamp_ms: int) -> Request:
    """Return the question for the first offset stored at or after a time."""
    fields = {**_queue_fields(queue), "timestamp": str(timestamp_ms), "boundaryType": "lower"}
    return Request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)


def group_offset_request(group: str, queue: QueueRef) -> Request:
    """Return the question for the offset that a group will read next.

    QUERY_NOT_FOUND if there is none; releases before 5 may answer 0 instead.
    """
    fields = {"consumerGroup": group, **_queue_fields(queue), "setZeroIfNotFound": "false"}
    return Request(RequestCode.QUERY_CONSUMER_OFFSET, fields)


def commit_offset_request(group: str, queue: QueueRef, offset: int) -> Request:
    """Return the request that sets the offset which a group will read next."""
    fields = {"consumerGroup": group, **_queue_fields(queue), "commitOffset": str(offset)}
    return Request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)


def all_group_offsets_request() -> Request:
    """Return the question for the offsets of all groups and topics on a broker."""
    return Request(RequestCode.GET_ALL_CONSUMER_OFFSET)


def parse_offset(answer: Command) -> LogicalOffset:
    """Return the answer to a question for one offset; KeyError or ValueError if it holds none."""
    return LogicalOffset(int(answer.ext["offset"]))


def parse_queues_of_group(body: Body, group: str, topic: str) -> set[int]:
    """Return the queues of a topic that a group has an offset for, from the table of all groups.

    ValueError, KeyError, TypeError or AttributeError if the body is no such table.
    """
    table = parse_json(body)["offsetTable"].get(f"{topic}@{group}") or {}
    return {int(number) for number in table}


def _queue_fields(queue: QueueRef) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name}


# Single messages


def query_message_request(topic: str, broker_name: str, key: str, limit: int) -> Request:
    """Return the question for messages by the hash of a key, of all times."""
    return Request(
        RequestCode.QUERY_MESSAGE,
        {
            "topic": topic,
            "key": key,
            "maxNum": str(limit),
            "beginTimestamp": "0",
            "endTimestamp": str(_FOREVER_MS),
            "bname": broker_name,
        },
    )


def view_message_request(physical_offset: PhysicalOffset | int) -> Request:
    """Return the question for the record at an offset of the commit log."""
    return Request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(physical_offset)})
