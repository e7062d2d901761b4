"""Opening the broker that a command works with, as whoever asks.

Credentials and TLS are options of `rocketmq-broker` itself, before the command, or variables of the
environment; a secret is better given as a variable, since others can see a command line.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from broker_core import open_broker
from broker_core.cli.output import progress
from broker_core.clients.address import parse_address
from broker_core.types import Mode

if TYPE_CHECKING:
    from broker_core.api import Broker

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS = {
    "token": "NAME.SECRET of a broker that asks for credentials.",
    "access_key": "Name of a user.",
    "secret_key": "The user's secret.",
    "security_token": "The session token of temporary keys.",
    "tls_ca": "Certificates to trust, a file.",
    "tls_cert": "The client's certificate, a file.",
    "tls_key": "The client's key, a file.",
    "tls_server_name": "The name in the broker's certificate, if it is not the address.",
}


def credential_options(command: _Command) -> _Command:
    """Add options that say who asks; each has a variable, as ROCKETMQ_TOKEN."""
    for name, text in reversed(_OPTIONS.items()):
        command = click.option(
            f"--{name.replace('_', '-')}",
            name,
            envvar=f"ROCKETMQ_{name.upper()}",
            show_envvar=True,
            help=text,
        )(command)
    return command


def open_asked(
    address: str, mode: Mode = "r", *, create: bool = False, config: Path | None = None
) -> Broker:
    """Open the broker at an address with the credentials that were given, if any.

    Recovery of a store that was not closed shows how far it is.
    """
    given = click.get_current_context().find_root().params
    who = {name: given[name] for name in _OPTIONS if given.get(name) is not None}
    if mode == "r" or parse_address(address).path is None:
        return open_broker(address, mode, create, config, **who)
    with progress("Recovering") as report:
        return open_broker(address, mode, create, config, progress=report)
