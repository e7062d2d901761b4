"""Both evaluators behind one question, for tests that hold them to the same answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from broker_core.filter.sqlfilter import SqlFilter

Evaluator = Callable[[SqlFilter, Sequence[Mapping[str, str]]], list[str]]


def scalar(sql: SqlFilter, messages: Sequence[Mapping[str, str]]) -> list[str]:
    return list(sql.verdicts(messages))


def columnar(sql: SqlFilter, messages: Sequence[Mapping[str, str]]) -> list[str]:
    columns = {
        name: pa.array([properties.get(name) for properties in messages], pa.string())
        for name in sql.properties
    }
    masks = sql.masks(columns, len(messages))
    stacked = np.array(masks)
    assert stacked.shape == (3, len(messages))
    assert (stacked.sum(axis=0) <= 1).all(), "a row has two verdicts"
    words: list[str] = np.select(list(stacked), ["true", "null", "error"], "false").tolist()
    return words


EVALUATORS = (scalar, columnar)
