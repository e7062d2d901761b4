from __future__ import annotations

import threading

import pytest

pytest.importorskip("numba")

from broker_core.codec.decode_kernels import has_used_scratch, scratch


def test_scratch_is_the_same_room_each_time() -> None:
    first = scratch(100_000)

    assert len(first) == 100_000
    assert scratch(50_000).ctypes.data == first.ctypes.data
    assert len(scratch(200_000)) == 200_000


def test_each_thread_has_its_own_scratch() -> None:
    ours = scratch(1000)
    ours[:] = 1
    found = []

    def work() -> None:
        theirs = scratch(1000)
        theirs[:] = 2
        found.append(theirs.ctypes.data)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert found != [ours.ctypes.data]
    assert set(ours.tolist()) == {1}


def test_scratch_of_which_much_was_used_is_given_back() -> None:
    address = scratch(64 << 20).__array_interface__["data"][0]

    has_used_scratch(1 << 20)
    assert scratch(1000).ctypes.data == address

    has_used_scratch(64 << 20)
    assert scratch(1000).ctypes.data != address
