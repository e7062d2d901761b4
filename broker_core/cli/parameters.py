"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def config_option(command: _Command) -> _Command:
    """Add --config."""
    return click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A broker.conf; it must agree with the store's files.",
    )(command)


def broker_option(command: _Command) -> _Command:
    """Add --broker, which must be given, and --config."""
    return _broker_option(command, is_required=True)


def optional_broker_option(command: _Command) -> _Command:
    """Add --broker, which may be left out, and --config."""
    return _broker_option(command, is_required=False)


def _broker_option(command: _Command, *, is_required: bool) -> _Command:
    return click.option(
        "--broker",
        "address",
        required=is_required,
        envvar="ROCKETMQ_BROKER",
        metavar="ADDRESS",
        help="file:/path/to/store or a path, grpc://host:port, rocketmq://nameserver:port.",
    )(config_option(command))


def json_option(command: _Command) -> _Command:
    """Add --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def store_argument(command: _Command) -> _Command:
    """Add the argument STORE, a store's path."""
    return click.argument("store", type=click.Path(path_type=Path, readable=False))(command)


def time_option(*names: str, help_text: str) -> Callable[[_Command], _Command]:
    """Add an option for a time: milliseconds since 1970, or ISO 8601."""

    def add(command: _Command) -> _Command:
        return click.option(*names, callback=_parse_time, metavar="TIME", help=help_text)(command)

    return add


def _parse_time(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Milliseconds since 1970; ISO 8601 without an offset is local time."""
    if value is None or value.lstrip("-").isdecimal():
        return None if value is None else int(value)
    try:
        moment = datetime.datetime.fromisoformat(value)
    except ValueError as error:
        message = f"{value!r} is neither milliseconds nor ISO 8601 (2026-01-31T12:00:00)"
        raise click.BadParameter(message, ctx, param) from error
    return round(moment.timestamp() * 1000)


def parse_properties(pairs: Iterable[str]) -> dict[str, str]:
    """Return NAME=VALUE texts as a mapping; a usage error for any other form."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            message = f"{pair!r} is no NAME=VALUE"
            raise click.BadParameter(message, param_hint="--property")
        found[name] = value
    return found
