"""The command `plimsoll`.

Standard output is for programs (`local`: one JSON line when ready; `version`: the version;
`example`: YAML; `spark-jars`: a folder; `preflight`: the report), everything else goes to standard
error. Exit codes: 0 after a clean stop, 1 when it could not run, 2 for bad arguments or files;
`preflight`: 0 when no check failed, 1 when one did or there is no Kubernetes, 2 for bad arguments.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
import typer
import uvloop

from plimsoll_core.addresses import LOOPBACK_NAME, is_loopback
from plimsoll_core.errors import Refusal
from plimsoll_operator import acl_command
from plimsoll_operator.api import API_VERSION
from plimsoll_operator.api.load import Resource, Unreadable, from_yaml
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.control_failures import surface
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.local.cluster import LocalCluster, LocalOptions, LocalReady
from plimsoll_operator.local.documents import Documents, gather, secured
from plimsoll_operator.local.driver_pods import fetch_jars
from plimsoll_operator.local.layout import BadDirectory, DirectoryLayout
from plimsoll_operator.local.ports import LOOPBACK
from plimsoll_operator.local.start import CannotRun, log_to_file, log_to_terminal
from plimsoll_operator.metalog.interface import MetadataLogError
from plimsoll_operator.preflight import checklist
from plimsoll_operator.preflight.checklist import (
    BEFORE,
    CHECKS,
    FAIRNESS_VALUE,
    OF_FILE,
    VALUES,
    verdicts,
)
from plimsoll_operator.preflight.checks import FAIRNESS
from plimsoll_operator.preflight.facts import NotRead, Verdict, Wishes
from plimsoll_operator.preflight.gather import Gatherer
from plimsoll_operator.shipped_files import ExampleName, example_text, installed_version
from plimsoll_process.process_tuning import switch_soon, tune

app = typer.Typer(
    name="plimsoll",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(acl_command.app)
DATA = Path("plimsoll-data")
WHICH_SERVER = "The kubeconfig's current context selects the API server (KUBECONFIG)."


@app.callback()
def plimsoll(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log every action, not only warnings.")
    ] = False,
) -> None:
    """A replicated, partitioned log that speaks the Kafka protocol and is run by Kubernetes."""
    log_to_terminal(verbose=verbose)


@app.command()
def local(
    brokers: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="Number of brokers; default: the LogCluster's, or 3."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65_000, help="Port of broker 0; each broker adds its id."),
    ] = None,
    address: Annotated[
        str, typer.Option(help="Loopback address of all ports: 127.0.0.1 or ::1.")
    ] = LOOPBACK,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", "-f", help="YAML file of a LogCluster, Topics, … (see plimsoll example)."
        ),
    ] = None,
    data: Annotated[Path, typer.Option(help="Directory of all data, logs and credentials.")] = DATA,
    no_restart: Annotated[
        bool, typer.Option("--no-restart", help="Do not restart a broker that exits.")
    ] = False,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="Secure the cluster: clients need TLS and a password (that of user admin is in "
            "users/admin), rights are enforced, brokers use certificates among themselves. The "
            "port of broker 0 is then 9094 by default.",
        ),
    ] = False,
    restore_metadata: Annotated[
        str,
        typer.Option(
            help="Restore the history of lost metadata that the last start named, by its "
            "name. Changes that it lacks are lost."
        ),
    ] = "",
) -> None:
    """Run a cluster on this machine: a controller and broker processes on loopback.

    Without a file it starts three brokers, and clients may create topics. It prints one JSON line
    when it is ready, and stops cleanly on SIGINT and SIGTERM. The next run with the same directory
    continues with the same data.
    """
    if address == LOOPBACK_NAME or not is_loopback(address):
        _fail(f"--address {address}: give a loopback address, 127.0.0.1 or ::1.", 2)
    documents = _documents(file or [], brokers)
    if secure:
        documents, port = secured(documents, port), None
    wishes = LocalOptions(
        root=data.absolute(),
        port=port,
        restart=not no_restart,
        documents=documents,
        address=address.strip("[]"),
        restore_metadata=restore_metadata,
    )
    tune()
    switch_soon()
    # Records, passwords and keys: also in a directory that other users can enter.
    os.umask(0o077)
    layout = DirectoryLayout(wishes.root)
    try:
        layout.prepare()
        log_to_file(layout.operator_log)
        uvloop.run(_local(wishes))
    except (BadDirectory, CannotRun, MetadataLogError, OSError) as error:
        _fail(str(error), 1)


@app.command("spark-jars")
def spark_jars() -> None:
    """Fetch Spark's Kafka connector with Maven, for Verifications of `plimsoll local`.

    Prints the target folder: PLIMSOLL_SPARK_JARS, or a folder in the user's cache.
    """
    raise typer.Exit(fetch_jars(os.environ))


@app.command()
def version() -> None:
    """Print the version of this software."""
    typer.echo(f"plimsoll {installed_version()}")


@app.command()
def example(
    name: Annotated[ExampleName, typer.Argument(help="The kind of example.")] = ExampleName.TOPIC,
) -> None:
    """Print an example: YAML for `plimsoll local -f` and for `kubectl apply -f`."""
    typer.echo(example_text(name), nl=False)


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
        "metrics": ready.metrics,
        "pids": ready.pids,
    }
    if ready.listeners:
        line |= {"listeners": ready.listeners}
    if ready.authority:
        line |= {"authority": ready.authority}
    if ready.users:
        line |= {"users": ready.users}
    typer.echo(json.dumps(line))
    sys.stdout.flush()


@app.command()
def preflight(
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of the chart's installation.")
    ] = "plimsoll-system",
    watch_namespace: Annotated[
        list[str] | None,
        typer.Option(help="One of the chart's watch.namespaces; repeatable; default: all."),
    ] = None,
    storage_class: Annotated[
        str, typer.Option(help="StorageClass of brokers' volumes; default: the default class.")
    ] = "",
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            help="YAML of a LogCluster and its Topics: are there volumes and nodes for its pools,"
            " and does it keep to the limits?",
        ),
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Run only this check; repeatable. One of: {', '.join(CHECKS)};"
            f" default: {', '.join(BEFORE)}."
        ),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help=f"Value of the chart, NAME=BOOL; NAME is one of: {', '.join(VALUES)}."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on one line.")
    ] = False,
) -> None:
    """Check that a Kubernetes cluster can run Plimsoll: version, volumes, rights, webhooks, etcd.

    Uses the kubeconfig's current context, or in a pod its ServiceAccount. To measure the latency of
    etcd it writes a small object a hundred times, and then deletes it.
    """
    true = _chart_values(values or [])
    if unknown := sorted({*(check or ())} - {*CHECKS}):
        _fail(f"There is no check {', '.join(unknown)}; choose from: {', '.join(CHECKS)}.", 2)
    planned = [] if file is None else _objects(file)
    wishes = Wishes(
        namespace=namespace,
        watched=tuple(watch_namespace or ()),
        storage_class=storage_class,
        cluster=_log_cluster(file, planned),
        topics=tuple(one for one in planned if isinstance(one, Topic)),
        values=true,
    )
    wanted = check or [one for one in BEFORE if one != FAIRNESS or FAIRNESS_VALUE in true]
    if file is not None and not check:
        wanted += OF_FILE
    found = asyncio.run(_preflight(wishes, wanted))
    typer.echo(checklist.as_json(found) if as_json else checklist.lines(found))
    if checklist.failed(found):
        raise typer.Exit(1)


def _log_cluster(file: Path | None, planned: list[Resource]) -> LogCluster | None:
    """Return the first LogCluster among the objects of the file, None without a file. End the
    command with exit code 2 if it has none."""
    if file is None:
        return None
    for one in planned:
        if isinstance(one, LogCluster):
            return one
    _fail(f"The file {file} contains no LogCluster; name a file that has one.", 2)


async def _preflight(wishes: Wishes, wanted: list[str]) -> list[Verdict]:
    # The official client takes half a second to import, for which no other command should wait.
    from plimsoll_operator.kube.official_transport import NoCluster, OfficialTransport, find_access

    try:
        transport = OfficialTransport(await find_access())
    except NoCluster as error:
        _fail(str(error), 1)
    gatherer = Gatherer(KubeApi(transport), transport, wishes)
    try:
        answer = await gatherer.version()
        if isinstance(answer, NotRead) and not answer.refused:
            # Every check would fail with this message.
            _fail(f"No API server answers: {answer.message}. {WHICH_SERVER}", 1)
        return await verdicts(gatherer, wishes, wanted)
    finally:
        await transport.close()


def _chart_values(settings: list[str]) -> frozenset[str]:
    """Return the names of the chart's boolean values that are true: the defaults, changed by
    `settings`, each NAME=BOOL. End the command with exit code 2 on an invalid setting."""
    stated = dict(VALUES)
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in stated or value not in ("true", "false"):
            _fail(f"--set {setting}: give one of {', '.join(VALUES)} as =true or =false.", 2)
        stated[name] = value == "true"
    return frozenset(name for name, value in stated.items() if value)


def _objects(path: Path) -> list[Resource]:
    """Return the objects in a file. End the command with exit code 2 if there is none, or one
    cannot be read."""
    try:
        found = list(from_yaml(path.read_text()))
    except OSError as error:
        _fail(f"{path}: {error.strerror}.", 2)
    except (UnicodeDecodeError, Unreadable) as error:
        _fail(f"{path}: {error}", 2)
    if not found:
        _fail(f"The file {path} contains no object of {API_VERSION}.", 2)
    return found


def _documents(files: list[Path], brokers: int | None) -> Documents:
    resources: list[Resource] = []
    for path in files:
        resources += _objects(path)
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
    app()


if __name__ == "__main__":
    main()
