"""Availability of kernels: decides whether a compiled loop or its NumPy twin runs.

Problem: NumPy and Arrow take a batch through memory some twenty times, and waiting for memory is
most of the cost. A kernel takes it through once.

Invariants: each kernel (`*_kernels.py`) has a twin of NumPy and Arrow calls in the module of the
same name, which says what it computes; tests run both ways (`either_way`) and hold them equal.
Kernels take the common shape of records. For any other they return that they did not, and the twin
does the work, so that every error is found and worded in one place.

Outline: a caller asks `is_worth(rows)`, imports the kernel inside the `if`, and calls it with
arrays from arguments.py. The first such call loads all modules of kernels: a third of a second if
they are compiled, some seconds on a new machine. What is compiled is kept beside the source or in
the user's cache folder. Without Numba, or if nothing can be kept, the twins do all the work.

Rejected: a C or Rust extension (docs/decisions/0010-compiled-loops.md).
"""

from __future__ import annotations

import importlib
import logging
from functools import cache

log = logging.getLogger(__name__)

WORTH_ROWS = 2048
"""Smaller batches go to the twins: they would not pay for loading the kernels."""

KERNEL_MODULES = (
    "broker_core.codec.decode_kernels",
    "broker_core.codec.encode_kernels",
    "broker_core.codec.fields_kernels",
    "broker_core.codec.spans_kernels",
    "broker_core.codec.record_copy_kernels",
    "broker_core.codec.scan_kernels",
    "broker_core.codec.hashing.crc_folding_kernels",
    "broker_core.codec.hashing.crc_kernels",
    "broker_core.codec.hashing.index_keys_kernels",
    "broker_core.codec.properties.join_kernels",
    "broker_core.codec.properties.search_kernels",
    "broker_core.store.dispatch_kernels",
    "broker_core.store.index.chains_kernels",
    "broker_core.store.queue.consume_queue_kernels",
    "broker_core.broker.transactions.unpack_kernels",
)
"""Every module of kernels, by name: imports point down, and these lie above, beside their twins."""

_COMPILER = ("numba", "llvmlite")


def is_worth(rows: int, *, may_load: bool = True) -> bool:
    """Return True if a batch of this many rows should go through a kernel, and there is one.

    Without `may_load` only if kernels are loaded already: for what a message has several of, so
    that a batch with too few messages does not load them by their number.
    """
    return rows >= WORTH_ROWS and (is_available() if may_load else is_loaded())


def is_loaded() -> bool:
    """Return True if kernels are loaded already, so that they pay for any batch."""
    # Looks into the cache first: asking `is_available` would load them.
    return bool(is_available.cache_info().currsize) and is_available()


@cache
def is_available() -> bool:
    """Load or compile all kernels when first asked; return False if that is not possible."""
    try:
        for name in KERNEL_MODULES:
            importlib.import_module(name)  # importing one compiles or loads its kernels
    except ImportError as error:
        if error.name not in _COMPILER:
            raise
        reason = str(error)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        reason = str(error)
    else:
        return True
    log.info("event=kernels_unavailable reason=%s", reason)
    return False
