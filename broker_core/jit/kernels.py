"""Loops over records, compiled: what NumPy does in many passes over memory, done in one.

Each kernel here has a twin of NumPy and Arrow calls in the codec, which says what it computes;
tests hold the two equal. Kernels take the common shape of records. For any other they answer that
they did not, and the twin does the work, so that every error is found and worded in one place.

Numba compiles them, once a machine: the result is kept beside the source or in the user's cache
folder. Small batches do not ask for it, and where Numba is missing, or nothing can be kept, the
twins do all the work.
"""

from __future__ import annotations

import importlib
import logging
from functools import cache

WORTH_ROWS = 2048
"""Smaller batches are left to NumPy: they would not pay for loading the kernels."""

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
    "broker_core.codec.properties.columns_kernels",
    "broker_core.codec.properties.search_kernels",
    "broker_core.store.dispatch_kernels",
    "broker_core.store.index.chains_kernels",
    "broker_core.store.queue.consume_queue_kernels",
    "broker_core.broker.transactions.unpack_kernels",
)
"""Every module of kernels, by name: they lie above this one, beside their NumPy twins."""

_COMPILER = ("numba", "llvmlite")
_LOG = logging.getLogger(__name__)


def is_worth(rows: int) -> bool:
    """Whether a batch of so many rows should go through a kernel, and there are any."""
    return rows >= WORTH_ROWS and is_available()


def is_loaded() -> bool:
    """Whether kernels are loaded already, so that they pay for any batch."""
    return bool(is_available.cache_info().currsize) and is_available()


@cache
def is_available() -> bool:
    """Whether kernels can be had in this process; loads or compiles them when first asked."""
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
    _LOG.info("event=kernels_unavailable reason=%s", reason)
    return False
