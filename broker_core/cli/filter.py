"""`rocketmq-broker filter`: try an SQL92 filter on some properties."""

from __future__ import annotations

import click

from broker_core.cli.output import print_json, write_text
from broker_core.cli.parameters import json_option, parse_properties


@click.command("filter")
@click.argument("expression")
@click.option(
    "--property",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="A property of the message; may be repeated.",
)
@json_option
def filter_(expression: str, pairs: tuple[str, ...], as_json: bool) -> None:
    """Evaluate the SQL92 filter EXPRESSION on a message with the given properties.

    Prints true, false, null (a property is missing) or error, and below it the filter as RocketMQ
    understands it.
    """
    from broker_core import SqlFilter

    compiled = SqlFilter(expression)
    verdict = compiled.verdicts([parse_properties(pairs)])[0]
    if as_json:
        print_json(
            {
                "expression": expression,
                "parsed": compiled.describe(),
                "dropped": compiled.dropped,
                "properties": list(compiled.properties),
                "verdict": verdict,
            }
        )
    else:
        dropped = f"\nignored: {compiled.dropped}" if compiled.dropped else ""
        write_text(f"{verdict}\n{compiled.describe()}{dropped}\n")
