"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from broker_core.clients.address import parse_address

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


def _store_path(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    """A store's directory, given as a path or as the address of an embedded broker."""
    found = parse_address(value)
    if found.path is None:
        message = f"{found.text} is a broker behind a network, not a store's path"
        raise click.BadParameter(message, ctx, param)
    return found.path


def store_argument(command: _Command) -> _Command:
    """Add the argument STORE, a store's path."""
    return click.argument("store", callback=_store_path)(command)


def topic_argument(command: _Command) -> _Command:
    """Add the argument TOPIC, which may be given as --topic too."""
    option = click.option("--topic", "topic_option", help="The same as TOPIC.")(command)
    return click.argument("topic", required=False)(option)


def chosen_topic(topic: str | None, topic_option: str | None) -> str:
    """Return the topic that was given, in whichever way; a usage error if none was, or two."""
    if topic is not None and topic_option is not None:
        message = f"give TOPIC or --topic, not both ({topic}, {topic_option})"
        raise click.UsageError(message)
    name = topic if topic is not None else topic_option
    if name is None:
        message = "Missing argument 'TOPIC'."
        raise click.UsageError(message)
    return name


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
