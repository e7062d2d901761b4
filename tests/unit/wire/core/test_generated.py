from __future__ import annotations

import pytest

from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.methods import METHODS

pytest.importorskip("grpc_tools", reason="only development needs grpcio-tools")


def test_generated_modules_are_what_the_proto_says() -> None:
    from tools.generate_wire import stale

    assert stale() == []


def test_methods_have_names_of_their_own() -> None:
    assert len({method.path for method in METHODS}) == len(METHODS)


def test_optional_fields_tell_absent_from_empty() -> None:
    assert not pb.OffsetAt(topic="t").HasField("broker_name")
    assert pb.OffsetAt(topic="t", broker_name="").HasField("broker_name")
