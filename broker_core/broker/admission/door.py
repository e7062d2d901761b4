"""The door of one store: topics, queues and columns of messages that clients may write.

The package's docstring has the rules. records.py admits messages that came encoded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from broker_core.broker.admission.delayed import delayed_destinations, require_deliverable
from broker_core.broker.admission.own_names import require_client_topic
from broker_core.broker.admission.properties import refuse_own_properties
from broker_core.broker.topics import PERM_WRITE
from broker_core.codec import layout
from broker_core.codec.encode import record_sizes
from broker_core.codec.properties.checksum import ROOM_BYTES
from broker_core.codec.property_names import SCHEDULE_TOPIC
from broker_core.codec.spans import spans_of
from broker_core.errors import IllegalMessageError, PermissionDeniedError, RequestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.broker.catalog import Catalog
    from broker_core.broker.topics import TopicConfig
    from broker_core.codec.message_batch import Destinations, MessageBatch
    from broker_core.codec.spans import Spans
    from broker_core.store.settings import StoreSettings

CLIENT_FLAGS = int(layout.SysFlag.COMPRESSED | layout.SysFlag.MULTI_TAGS | layout.COMPRESSION_MASK)
"""System flags that a client may set: those that say how the body is compressed."""


class Door:
    """What clients may write in one store. Not thread-safe, as the catalog that it asks."""

    def __init__(self, catalog: Catalog, settings: StoreSettings) -> None:
        self._catalog = catalog
        self.settings = settings

    def topic(self, topic: str) -> TopicConfig:
        """Return the configuration of a topic that clients may write to; else raise."""
        require_client_topic(topic)
        config = self._catalog.config(topic)
        if not config.perm & PERM_WRITE:
            message = (
                f"Topic {topic} is not writable (perm {config.perm}); give it perm "
                f"{config.perm | PERM_WRITE} to write to it."
            )
            raise PermissionDeniedError(message)
        return config

    def require_queues(self, topic: str, *queue_ids: int) -> None:
        """Raise unless clients may write to these queues of a topic."""
        config = self.topic(topic)
        for queue_id in queue_ids:
            config.check_queue(queue_id)

    def require_destinations(
        self,
        to: Destinations,
        texts: Spans | None,
        sizes: NDArray[np.integer] | None = None,
    ) -> None:
        """Raise unless clients may write to all of these destinations.

        `texts` are the properties of each message, `sizes` the bytes of its record; without both
        none may be delayed.
        """
        codes = to.topic_codes
        if len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < len(to.topics):
            # What no topic is asked about would pass.
            message = (
                f"Messages have topic codes {int(codes.min())} to {int(codes.max())}, but the "
                f"request has {len(to.topics)} topics. Nothing was written."
            )
            raise RequestError(message)
        for code, topic in enumerate(to.topics):
            rows = np.flatnonzero(to.topic_codes == code)
            queue_ids = to.queue_ids[rows]
            if topic != SCHEDULE_TOPIC or texts is None or sizes is None:
                extremes = (int(queue_ids.min()), int(queue_ids.max())) if len(rows) else ()
                self.require_queues(topic, *extremes)
            elif len(rows):
                self._require_delayed(texts, rows, queue_ids, sizes[rows])

    def _require_delayed(
        self,
        texts: Spans,
        rows: NDArray[np.intp],
        queue_ids: NDArray[np.int32],
        sizes: NDArray[np.integer],
    ) -> None:
        levels = len(self.settings.delay_levels_ms)
        to = delayed_destinations(texts, rows, queue_ids, levels)
        self.require_destinations(to, None)
        self.require_deliverable(to, sizes)

    def require_deliverable(self, to: Destinations, sizes: NDArray[np.integer]) -> None:
        """Raise IllegalMessageError for a delayed record whose copy no log file can hold.

        `to` is where the copy belongs, `sizes` are those of the records in the schedule topic.
        """
        room = ROOM_BYTES if self.settings.append_property_crc else 0
        require_deliverable(to, sizes + room, self.settings.commit_log_file_bytes)

    def messages(self, messages: MessageBatch) -> MessageBatch:
        """Return columns of messages as they may be appended, or raise for the first that may not.

        Fields that only the broker knows are set here or by the append.
        """
        texts = sizes = None
        if SCHEDULE_TOPIC in messages.topics:
            texts, sizes = spans_of(messages.property_texts), record_sizes(messages)
        self.require_destinations(messages.destinations, texts, sizes)
        refuse_own_properties(messages)
        self._require_flags(messages)
        lengths = spans_of(messages.bodies).lengths
        if len(lengths) and not lengths.all():
            raise illegal_body(int(lengths.argmin()), 0, self.settings.max_message_bytes)
        return replace(messages, store_host=self.settings.store_host, prepared_offsets=0)

    def _require_flags(self, messages: MessageBatch) -> None:
        flags = np.broadcast_to(np.asarray(messages.sys_flags), len(messages))
        wrong = (flags & ~CLIENT_FLAGS) != 0
        if wrong.any():
            row = int(wrong.argmax())
            raise illegal_flags(row, int(flags[row]))


def illegal_flags(row: int, flags: int) -> RequestError:
    """Return the error for a message with system flags that only the broker sets."""
    message = (
        f"Message {row} of the request has system flags {flags:#x}, which a client can't set. "
        "Nothing was written."
    )
    return RequestError(message)


def illegal_body(row: int, length: int, limit: int) -> IllegalMessageError:
    """Return the error for a message whose body is empty or too large."""
    what = f"has {length} bytes" if length else "is empty"
    message = (
        f"The body of message {row} of the request {what}; bodies have 1 to {limit} bytes "
        "(maxMessageSize). Nothing was written."
    )
    return IllegalMessageError(message)
