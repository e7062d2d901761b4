"""Which figures are drawn, and under which heading."""

from __future__ import annotations

from collections.abc import Mapping

from tests.bench.report_figures import COLUMN_SETS, Figures
from tests.bench.report_plot import Chart

# The plot's name, and the group of figures that it stands in.
PLOTS = {
    "reading": "Reading into Spark",
    "writing": "Writing from Spark",
    "filters": "Filters and lookups",
    "store": "The codec and the store by themselves",
}

_MILLION = "million rows a second"


def charts(figures: Figures) -> dict[str, Chart]:
    """The plots for which there are figures."""
    drawn = {
        "reading": Chart("Streams into Spark, from end to end", _MILLION, _reading(figures)),
        "writing": Chart("Batches out of Spark", _MILLION, _writing(figures)),
        "filters": Chart(
            "Filtered reads beside reading everything", "times as fast", _filters(figures)
        ),
        "store": Chart("One core, without Spark", "million messages a second", _store(figures)),
    }
    return {name: chart for name, chart in drawn.items() if chart.groups}


Groups = dict[str, dict[str, float]]


def _reading(figures: Figures) -> Groups:
    return _known(
        {
            words: {
                "file:": _rate(figures, f"read.stream.embedded.vs_ceiling{suffix}", "ours"),
                "grpc://": _rate(figures, f"read.stream.remote.vs_ceiling{suffix}", "ours"),
                "Spark's Kafka source": _rate(
                    figures, f"read.stream.embedded.vs_kafka{suffix}", "peer"
                ),
                "ceiling of Python sources": _rate(
                    figures, f"read.stream.embedded.vs_ceiling{suffix}", "peer"
                ),
            }
            for suffix, words in COLUMN_SETS.items()
        }
    )


def _writing(figures: Figures) -> Groups:
    bars = {
        "exactly once": _rate(figures, "write.exactly_once.vs_kafka", "ours"),
        "at least once": _rate(figures, "write.at_least_once.vs_kafka", "ours"),
        "Spark's Kafka sink": _rate(figures, "write.at_least_once.vs_kafka", "peer"),
        "a Python sink that discards": _rate(figures, "write.vs_ceiling", "peer"),
    }
    return _known({"keys and bodies": bars})


def _filters(figures: Figures) -> Groups:
    names = {
        "read.tag.selective": "tag filter, 1 % left",
        "read.sql.selective": "SQL92 filter, 1 % left",
        "query.key.vs_scan": "one key, from Spark",
    }
    return {
        words: {"beside reading everything": figures[name]["value"]}
        for name, words in names.items()
        if name in figures
    }


def _store(figures: Figures) -> Groups:
    names = {
        "decode.body.vs_take": "decode, two columns",
        "decode.default.vs_take": "decode, ten columns",
        "append.nokeys.vs_take": "append, without keys",
        "append.keys.vs_take": "append, with keys",
    }
    return _known(
        {
            words: {
                "ours": _rate(figures, name, "ours"),
                "copying the bytes once": _rate(figures, name, "peer"),
            }
            for name, words in names.items()
        }
    )


def _rate(figures: Figures, name: str, side: str) -> float | None:
    return figures[name][side] / 1e6 if name in figures else None


def _known(groups: Mapping[str, Mapping[str, float | None]]) -> Groups:
    """Without bars that have no value, and groups that have no bar."""
    known = {
        group: {name: value for name, value in bars.items() if value is not None}
        for group, bars in groups.items()
    }
    return {group: bars for group, bars in known.items() if bars}
