"""`rocketmq-broker`: all commands under one name, and how each of them ends with an error.

Errors are one line on stderr and exit status 1; usage errors exit with 2, as click has it.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import click

from broker_core.cli.check import check
from broker_core.cli.dump import dump
from broker_core.cli.filter import filter_
from broker_core.cli.hash_secret import hash_secret
from broker_core.cli.offsets import offsets
from broker_core.cli.parameters import credential_options
from broker_core.cli.query import query
from broker_core.cli.send import send
from broker_core.cli.serve import serve
from broker_core.cli.stats import stats
from broker_core.cli.tail import tail
from broker_core.cli.topics import topics
from broker_core.errors import BrokerError, FilterSyntaxError


class _Commands(click.Group):
    """A group of commands that turns our errors into one line and an exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokerError as error:
            click.echo(f"rocketmq-broker: {_shown(error)}", err=True)
            ctx.exit(1)
        except BrokenPipeError:
            # The reader of our output has closed it, as in `tail | head`. Python would flush stdout
            # once more at exit, and fail once more: give it somewhere to write.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except OSError as error:
            click.echo(f"rocketmq-broker: {error}", err=True)
            ctx.exit(1)
        return result


def _show_version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    """Print the version and exit; it is read only if asked for, since that takes 0.05 s."""
    if not is_asked:
        return
    from importlib import metadata

    try:
        version = metadata.version("pyspark-rocketmq")
    except metadata.PackageNotFoundError:
        version = "not installed"
    click.echo(f"rocketmq-broker, version {version}")
    ctx.exit()


def _shown(error: BrokerError) -> str:
    """Return the first line of the message; a terminal also shows the caret under a filter."""
    text = str(error)
    if isinstance(error, FilterSyntaxError) and sys.stderr.isatty():
        return text
    return text.partition("\n")[0]


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", is_flag=True, help="Log events to stderr.")
@credential_options
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def main(verbose: bool, **credentials: str | None) -> None:
    """Work with a RocketMQ message store, or with a broker over the network."""
    del credentials  # read from the context where a broker is opened
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s %(name)s %(message)s")


for _command in (
    serve,
    topics,
    send,
    tail,
    query,
    offsets,
    dump,
    check,
    stats,
    filter_,
    hash_secret,
):
    main.add_command(_command)
