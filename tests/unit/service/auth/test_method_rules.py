from __future__ import annotations

from broker_core.service.auth.method_rules import RULES
from broker_core.wire.core.methods import METHODS


def test_every_method_has_a_rule() -> None:
    assert set(RULES) == set(METHODS)
