"""`python -m broker_core.cli`: the `rocketmq-broker` command without an installation."""

from broker_core.cli.commands import main

main(prog_name="rocketmq-broker")
