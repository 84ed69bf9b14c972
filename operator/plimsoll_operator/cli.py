"""The command `plimsoll`.

Standard output is for the machine (one JSON line when ready), everything else goes to standard
error.  Exit codes: 0 after a clean stop, 1 when it could not run, 2 for bad arguments or files.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
import typer
import uvloop

from plimsoll_core.errors import Refusal
from plimsoll_operator.api import API_VERSION
from plimsoll_operator.api.load import Resource, Unreadable, from_yaml
from plimsoll_operator.control_failures import surface
from plimsoll_operator.local.cluster import LocalCluster, LocalOptions, LocalReady
from plimsoll_operator.local.documents import Documents, gather
from plimsoll_operator.local.layout import BadDirectory
from plimsoll_operator.local.start import CannotRun
from plimsoll_operator.metalog.interface import MetadataLogError
from plimsoll_process.collector import tune

app = typer.Typer(name="plimsoll", no_args_is_help=True, add_completion=False)


@app.callback()
def plimsoll() -> None:
    """A replicated, partitioned log that speaks the Kafka protocol and is run by Kubernetes."""


@app.command()
def local(
    data: Annotated[Path, typer.Option(help="Where everything is kept.")],
    brokers: Annotated[
        int | None, typer.Option(min=1, max=100, help="How many; default: the LogCluster's, or 3.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65_000, help="The first broker's; others follow it.")
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="YAML: a LogCluster, Topics, …"),
    ] = None,
    no_restart: Annotated[
        bool, typer.Option("--no-restart", help="Leave a broker dead that dies.")
    ] = False,
) -> None:
    """Run a cluster on this machine: a controller and broker processes on loopback.

    Prints one JSON line when it is ready; stops cleanly on SIGINT and SIGTERM; a later run with
    the same directory goes on where it was.
    """
    logging.basicConfig(
        level="INFO",
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    documents = _documents(file or [], brokers)
    wishes = LocalOptions(
        root=data.absolute(), port=port, restart=not no_restart, documents=documents
    )
    tune()
    try:
        uvloop.run(_local(wishes))
    except (BadDirectory, CannotRun, MetadataLogError, OSError) as error:
        _fail(str(error), 1)


async def _local(wishes: LocalOptions) -> None:
    cluster = LocalCluster(wishes)
    loop = asyncio.get_running_loop()
    surface(loop, cluster.fail)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, cluster.stop)
    await cluster.run(_announce)


def _announce(ready: LocalReady) -> None:
    line = {
        "bootstrap": ready.bootstrap,
        "controller": ready.controller,
        "api": ready.api,
        "pids": ready.pids,
    }
    typer.echo(json.dumps(line))
    sys.stdout.flush()


def _documents(files: list[Path], brokers: int | None) -> Documents:
    resources: list[Resource] = []
    for path in files:
        try:
            found = list(from_yaml(path.read_text()))
        except OSError as error:
            _fail(f"{path}: {error.strerror}.", 2)
        except (UnicodeDecodeError, Unreadable) as error:
            _fail(f"{path}: {error}", 2)
        if not found:
            _fail(f"{path}: there is no object of {API_VERSION} in it.", 2)
        resources += found
    try:
        documents = gather(resources, brokers)
    except msgspec.ValidationError as error:
        _fail(str(error), 2)
    if isinstance(documents, Refusal):
        _fail(documents.message, 2)
    return documents


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(code)


def main() -> None:
    """The entry point."""
    app()


if __name__ == "__main__":
    main()
