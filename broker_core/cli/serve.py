"""`rocketmq-broker serve`: serve a store over gRPC to many clients."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import click

from broker_core.cli.output import JsonLines
from broker_core.errors import ConfigError


@click.command()
@click.option(
    "--store",
    type=click.Path(file_okay=False, path_type=Path),
    help="The store's directory; by default storePathRootDir of the configuration.",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A broker.conf, with Apache's names for Apache's settings.",
)
@click.option(
    "--listen", metavar="HOST:PORT", help="Address to listen at. [default: 127.0.0.1:8081]"
)
@click.option(
    "--create", "--create-store", "create", is_flag=True, help="Create the store if there is none."
)
@click.option("--insecure", is_flag=True, help="Accept other machines without TLS and credentials.")
@click.option("--json", "as_json", is_flag=True, help="Log JSON objects, one per line.")
def serve(
    store: Path | None,
    config: Path | None,
    listen: str | None,
    create: bool,
    insecure: bool,
    as_json: bool = False,
) -> None:
    """Serve a store until SIGTERM or SIGINT, holding its lock all the time.

    Logs one line when it is ready. Clients connect to grpc://HOST:PORT.
    """
    # Else gRPC prints a line of its own beside each of ours.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from broker_core.service.main import serve as serve_store
    from broker_core.service.settings import ServiceSettings

    settings = ServiceSettings.load(config).listening_at(listen)
    configured = settings.store.store_path_root
    if store is None and not configured:
        message = "There is no store to serve; give --store, or storePathRootDir in a broker.conf."
        raise ConfigError(message)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    if as_json:
        logging.getLogger().handlers[0].setFormatter(JsonLines())
    serve_store(store or Path(configured), settings, create=create, is_insecure=insecure)
