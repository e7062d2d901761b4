"""How much a store holds, in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.store.index.file import list_index_files

if TYPE_CHECKING:
    from broker_core.broker.catalog import Catalog
    from broker_core.store.reader import StoreReader


def store_numbers(reader: StoreReader, catalog: Catalog) -> dict[str, int]:
    """Return topics, queues, messages and bytes of a store, as it is now."""
    reader.refresh()
    log_start, log_end = reader.log_range()
    segments = reader.log.segments
    ranges = [reader.queue_range(*queue) for queue in reader.queues()]
    return {
        "topics": len(catalog.names()),
        "queues": len(ranges),
        "messages": sum(maximum - minimum for minimum, maximum in ranges),
        "messagesEver": sum(maximum for _, maximum in ranges),
        "commitLogMinOffset": log_start,
        "commitLogMaxOffset": log_end,
        "commitLogFiles": len(segments),
        "commitLogFileSize": segments[0].size if segments else 0,
        "indexFiles": len(list_index_files(reader.root / "index")),
    }
