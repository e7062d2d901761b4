"""Delayed messages, the way a cluster wants them: to their own topic, with a level.

Our own cores are handed delayed messages ready for the schedule topic, with the place where they
belong among their properties. Brokers of a cluster do that themselves, and refuse it from others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.encode import MessageBatch
from broker_core.codec.properties.text import format_properties, parse_properties
from broker_core.codec.property_names import REAL_QUEUE_ID, REAL_TOPIC, SCHEDULE_TOPIC


def unscheduled(messages: MessageBatch) -> MessageBatch:
    """The same messages, those for the schedule topic back in the topics where they belong."""
    if SCHEDULE_TOPIC not in messages.topics:
        return messages
    topics = [topic for topic in messages.topics if topic != SCHEDULE_TOPIC]
    schedule = list(messages.topics).index(SCHEDULE_TOPIC)
    is_delayed = messages.topic_codes == schedule
    codes = np.where(
        messages.topic_codes > schedule, messages.topic_codes - 1, messages.topic_codes
    )
    queue_ids = messages.queue_ids.copy()
    texts = []
    for row in np.flatnonzero(is_delayed).tolist():
        properties = parse_properties(messages.property_texts[row].as_py())
        topic, queue_id = properties.pop(REAL_TOPIC), properties.pop(REAL_QUEUE_ID)
        if topic not in topics:
            topics.append(topic)
        codes[row], queue_ids[row] = topics.index(topic), int(queue_id)
        texts.append(format_properties(properties))
    return replace(
        messages,
        topics=topics,
        topic_codes=codes.astype(np.int32),
        queue_ids=queue_ids,
        properties=pc.replace_with_mask(
            messages.property_texts,
            pa.array(is_delayed),
            pa.array(texts, type=pa.binary()),
        ),
    )
