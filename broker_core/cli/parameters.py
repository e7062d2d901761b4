"""Options that several commands share, how their texts are read, and the broker that they name.

Credentials and TLS are options of `rocketmq-broker` itself, before the command, or variables of the
environment. A secret is better given as a variable: others can see a command line.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from broker_core import open_broker
from broker_core.cli.output import progress
from broker_core.clients.address import parse_address

if TYPE_CHECKING:
    from broker_core.api import Broker
    from broker_core.types import Mode

_Command = TypeVar("_Command", bound=Callable[..., Any])

_CREDENTIALS = {
    "token": "NAME.SECRET, for a broker that asks for credentials.",
    "access_key": "The user's name.",
    "secret_key": "The user's secret.",
    "security_token": "The session token of temporary keys.",
    "tls_ca": "File of certificates to trust.",
    "tls_cert": "File of the client's certificate.",
    "tls_key": "File of the client's key.",
    "tls_server_name": "Name in the broker's certificate, if it differs from the address.",
}


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
        help="file:/path/to/store, a path, grpc://host:port or rocketmq://nameserver:port.",
    )(config_option(command))


def credential_options(command: _Command) -> _Command:
    """Add the options for credentials and TLS; each has a variable, such as ROCKETMQ_TOKEN."""
    for name, text in reversed(_CREDENTIALS.items()):
        command = click.option(
            f"--{name.replace('_', '-')}",
            name,
            envvar=f"ROCKETMQ_{name.upper()}",
            show_envvar=True,
            help=text,
        )(command)
    return command


def open_with_credentials(
    address: str, mode: Mode = "r", *, create: bool = False, config: Path | None = None
) -> Broker:
    """Open the broker at an address with the credentials that were given, if any.

    Shows a progress bar while a store that was not closed is recovered.
    """
    given = click.get_current_context().find_root().params
    credentials = {name: given[name] for name in _CREDENTIALS if given.get(name) is not None}
    if mode == "r" or parse_address(address).path is None:
        return open_broker(address, mode, create, config, **credentials)
    with progress("Recovering") as report:
        return open_broker(address, mode, create, config, progress=report)


def json_option(command: _Command) -> _Command:
    """Add --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def _store_path(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    """Return a store's directory, given as a path or as the address of an embedded broker."""
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
    option = click.option("--topic", "topic_option", help="Another way to give TOPIC.")(command)
    return click.argument("topic", required=False)(option)


def chosen_topic(topic: str | None, topic_option: str | None) -> str:
    """Return the topic, given as an argument or an option; a usage error for none or both."""
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
    """Return milliseconds since 1970; ISO 8601 without an offset is local time."""
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
            message = f"{pair!r} is not NAME=VALUE"
            raise click.BadParameter(message, param_hint="--property")
        found[name] = value
    return found
