"""Laws of a few dispatch requests: made one by one they are what columns give, or none at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.codec.dispatch_request import DispatchRequests, dispatch_requests
from broker_core.codec.few_requests import FEW_RECORDS, QueueRequest, queue_requests
from broker_core.codec.frames import FrameBatch
from broker_core.codec.property_names import SCHEDULE_TOPIC
from broker_core.codec.record import Record
from broker_core.codec.scan import walk
from tests.kit.records import laid_out, mixtures

ORIGIN = 1 << 40
EXAMPLES = 50


def in_queues(requests: DispatchRequests) -> list[QueueRequest]:
    topics = [requests.topics[code] for code in requests.topic_codes.tolist()]
    columns = (
        requests.queue_ids,
        requests.queue_offsets,
        requests.physical_offsets,
        requests.sizes,
        requests.tags_codes,
    )
    rows = zip(topics, *(column.tolist() for column in columns), strict=True)
    taken = requests.in_queue.tolist()
    return [QueueRequest(*row) for row, is_in in zip(rows, taken, strict=True) if is_in]


def is_ordinary(records: Sequence[Record]) -> bool:
    return len(records) <= FEW_RECORDS and all(each.topic != SCHEDULE_TOPIC for each in records)


@given(mixtures())
@settings(max_examples=EXAMPLES)
def test_a_few_requests_are_those_of_columns(records: list[Record]) -> None:
    frames = laid_out(records, origin=ORIGIN)

    found = queue_requests(frames.buffer.tobytes(), ORIGIN)

    if is_ordinary(records):
        assert found == in_queues(dispatch_requests(frames))
    else:
        assert found is None


@given(mixtures(max_rows=4), st.data())
@settings(max_examples=2 * EXAMPLES)
def test_records_that_do_not_check_are_left_to_columns(
    records: list[Record], data: st.DataObject
) -> None:
    changed = bytearray(laid_out(records, origin=ORIGIN).buffer)
    # Half of them in a head: most bytes elsewhere are nobody's business.
    at = data.draw(st.one_of(st.integers(0, 100), st.integers(0, len(changed) - 1)))
    changed[at % len(changed)] ^= data.draw(st.integers(1, 255))
    stop = data.draw(st.one_of(st.just(len(changed)), st.integers(0, len(changed))))
    buffer = np.frombuffer(bytes(changed[:stop]), dtype=np.uint8)

    found = queue_requests(buffer.tobytes(), ORIGIN)

    checked = walk(buffer, 0, len(buffer), origin=ORIGIN, verify=False)
    if checked.end < len(buffer):
        assert found is None
    elif found is not None and len(buffer):
        nothing = np.zeros(len(checked.starts), dtype=np.int64)
        frames = FrameBatch(buffer, checked.starts, checked.sizes, nothing, origin=ORIGIN)
        assert found == in_queues(dispatch_requests(frames))
