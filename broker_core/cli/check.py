"""`rocketmq-broker check STORE`: verify everything that a store holds."""

from __future__ import annotations

from pathlib import Path

import click

from broker_core.cli.output import print_json, progress, write_text
from broker_core.cli.parameters import config_option, json_option, store_argument


@click.command()
@store_argument
@config_option
@json_option
def check(store: Path, config: Path | None, as_json: bool) -> None:
    """Verify every record, queue, index entry and setting of the store at STORE.

    Prints nothing if all is well; else one line for each problem, and exit status 1.
    """
    from broker_core.store.check.store import check as check_store
    from broker_core.store.settings import StoreSettings

    settings = StoreSettings.load(config)
    with progress("Checking") as report:
        problems = check_store(store, settings, report)
    if as_json:
        print_json([{"where": problem.where, "what": problem.what} for problem in problems])
    else:
        write_text("".join(f"{problem}\n" for problem in problems))
    if problems:
        click.get_current_context().exit(1)
