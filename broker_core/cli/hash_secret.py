"""`rocketmq-broker hash-secret`: hash a secret for a credentials file."""

from __future__ import annotations

import sys

import click

from broker_core.cli.output import print_json
from broker_core.cli.parameters import json_option


@click.command("hash-secret")
@json_option
def hash_secret(as_json: bool) -> None:
    """Read a secret from standard input, or prompt for it, and print its hash.

    The hash goes into the file that grpcCredentialsFile names. The secret is neither shown nor
    stored.
    """
    from broker_core.service.auth import credentials

    if sys.stdin.isatty():
        secret = click.prompt("Secret", hide_input=True, confirmation_prompt=True, err=True)
    else:
        secret = sys.stdin.readline().rstrip("\r\n")
    if not secret:
        message = "the secret is empty"
        raise click.UsageError(message)
    text = credentials.hash_secret(secret)
    if as_json:
        print_json({"secret": text})
    else:
        click.echo(text)
