"""The `rocketmq-broker` command."""

from broker_core.cli.commands import main

__all__ = ["main"]
