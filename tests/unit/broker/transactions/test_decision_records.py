from __future__ import annotations

import pytest

from broker_core.broker.transactions.decision_records import parse_body
from broker_core.errors import CorruptRecordError


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"delivered","level":1,"offset":Infinity}',
        b'{"kind":"done","owner":"o","name":"","batch":Infinity,"run":"r","keep":true}',
        b'{"kind":"forgotten","keys":' + b"[" * 50_000,
        b"17",
        b"\xff",
        b"",
    ],
)
def test_a_body_that_makes_no_sense_is_told(body: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="physical offset 7 makes no sense"):
        parse_body(body, 7)
