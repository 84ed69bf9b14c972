"""The command `kubectl-plimsoll`, which `kubectl` runs as `kubectl plimsoll`.

Results go to standard output, the reason of a failure to standard error. Exit codes: 0 on success;
1 if there is no result (or a Verification did not pass); 2 for bad arguments.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.live import Live

from plimsoll_operator.api.continuous import WINDOW_DEFAULT
from plimsoll_operator.kube.official_transport import NoCluster
from plimsoll_operator.kubectl_plugin import (
    report_bundle,
    shown,
    verbs_cluster,
    verbs_recovery,
    verbs_schedules,
    verbs_topics,
    verbs_verify,
)
from plimsoll_operator.kubectl_plugin.session import CommonOptions, PluginSession, connect
from plimsoll_operator.kubectl_plugin.shown import Findings, Format, Problem
from plimsoll_operator.kubectl_plugin.view_client import OPERATOR_NAMESPACE

WATCH_S = 2.0
HELP = "Show what a Plimsoll cluster is doing and why. Reads through the kubeconfig's API server."

Act = Callable[[PluginSession], Awaitable[Findings]]

# -h works as in kubectl; verbs inherit it.
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="kubectl-plimsoll", no_args_is_help=True, help=HELP, context_settings=HELP_OPTIONS
)


def _common(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


# The options of every verb, in the order of `CommonOptions`.
COMMON = (
    _common(
        "namespace",
        Annotated[
            str | None,
            typer.Option(
                "--namespace", "-n", help="Namespace of the LogCluster; default: the context's."
            ),
        ],
        None,
    ),
    _common(
        "cluster",
        Annotated[
            str | None,
            typer.Option(
                "--cluster",
                "-c",
                help="Name of the LogCluster; default: the only one in the namespace.",
            ),
        ],
        None,
    ),
    _common(
        "context",
        Annotated[
            str | None, typer.Option(help="The kubeconfig's context; default: the current one.")
        ],
        None,
    ),
    _common(
        "kubeconfig",
        Annotated[str | None, typer.Option(help="Default: $KUBECONFIG, ~/.kube/config.")],
        None,
    ),
    _common(
        "operator_namespace",
        Annotated[
            str,
            typer.Option(
                envvar="PLIMSOLL_OPERATOR_NAMESPACE",
                help="The operator's namespace (where the chart is installed).",
            ),
        ],
        OPERATOR_NAMESPACE,
    ),
    _common(
        "output",
        Annotated[
            Format | None,
            typer.Option("--output", "-o", help="Machine-readable output; default: a table."),
        ],
        None,
    ),
    _common(
        "watch",
        Annotated[bool, typer.Option("--watch", "-w", help="Refresh every 2 s.")],
        False,
    ),
)


def verb(name: str) -> Callable[[Callable[..., Act]], Callable[..., Act]]:
    """Return a decorator that registers a function as the subcommand `name`. The function takes the
    subcommand's own arguments; the common options are added. A parameter with a dataclass as its
    type stands for an option for each of the fields."""

    def register(make: Callable[..., Act]) -> Callable[..., Act]:
        own = inspect.signature(make, eval_str=True).parameters.values()
        groups: dict[str, Any] = {
            one.name: one.annotation for one in own if is_dataclass(one.annotation)
        }

        def run(**given: Any) -> None:
            output = given["output"]
            wishes = CommonOptions(
                **{field.name: given.pop(field.name) for field in fields(CommonOptions)}
                | {"output": output.value if output else None}
            )
            for name, group in groups.items():
                given[name] = group(**{one.name: given.pop(one.name) for one in fields(group)})
            _run(wishes, make(**given))

        parameters = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own for one in _options(p)
        ]
        signature = inspect.Signature([*parameters, *COMMON])
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        run.__doc__ = make.__doc__
        app.command(name)(run)
        return make

    return register


def _options(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """Return the parameter itself, or one for each field if its type is a dataclass."""
    group = parameter.annotation
    if not is_dataclass(group):
        return [parameter]
    kinds = get_type_hints(group, include_extras=True)
    return [_common(one.name, kinds[one.name], one.default) for one in fields(group)]


Topic = Annotated[str, typer.Argument(help="A topic's name.")]


@verb("status")
def status() -> Act:
    """Show the cluster on one screen."""
    return verbs_cluster.status


@verb("topics")
def topics() -> Act:
    """List all topics, declared by an object or created by a client."""
    return verbs_topics.topics


@verb("topic")
def topic(topic: Topic) -> Act:
    """Show a topic's partitions: leader, epoch, replicas, ISR, ELR, lag, size."""
    return partial(verbs_topics.topic, name=topic)


@verb("why")
def why(
    topic: Topic,
    partition: Annotated[int, typer.Argument(min=0)],
    since: Annotated[
        str | None,
        typer.Option(
            help="Start of the period: 30m, 2h, 3d, or a time; default: the whole history."
        ),
    ] = None,
) -> Act:
    """Show every change of a partition's leader and ISR: time, reason, origin."""
    return partial(verbs_topics.why, name=topic, partition=partition, since=since)


@verb("what-if")
def what_if(broker: Annotated[list[int], typer.Argument(min=0)]) -> Act:
    """Show partitions that would be offline or under min ISR without these brokers."""
    return partial(verbs_cluster.what_if, brokers=broker)


@verb("brokers")
def brokers() -> Act:
    """List brokers: state, rack, load, and the partitions that cannot spare each."""
    return verbs_cluster.brokers


@verb("blocked")
def blocked() -> Act:
    """List blocked actions with their deadlines, and objects in a bad condition."""
    return verbs_cluster.blocked


@verb("adopt")
def adopt(topic: Topic) -> Act:
    """Print a Topic object that declares an existing topic; apply it to adopt the topic."""
    return partial(verbs_topics.adopt, name=topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """The options of `verify` about the records to write."""

    records: Annotated[int, typer.Option(min=1, help="Number of records to write.")] = 10_000
    rate: Annotated[
        int | None, typer.Option(min=1, help="Maximum rate, in records per second.")
    ] = None
    allow_existing: Annotated[
        bool, typer.Option("--allow-existing", help="Accept a topic that already holds records.")
    ] = False
    user: Annotated[
        str | None, typer.Option(help="The User to log in as, if the listeners require a login.")
    ] = None
    continuous: Annotated[
        bool,
        typer.Option("--continuous", help="Write without an end, 100 records/s unless --rate."),
    ] = False
    window: Annotated[
        str, typer.Option(help="Length of a continuous run's windows, 10s to 1h.")
    ] = WINDOW_DEFAULT


@verb("verify")
def verify(
    topic: Annotated[
        str | None, typer.Argument(help="The topic's name in the log.", show_default=False)
    ] = None,
    *,
    options: WorkOptions,
    resume: Annotated[
        str | None,
        typer.Option(
            help=(
                "Write nothing; judge the ledger (the list of acknowledged records) that this "
                "earlier Verification kept."
            )
        ),
    ] = None,
    show: Annotated[
        str | None, typer.Option(help="Show this Verification; create nothing.")
    ] = None,
) -> Act:
    """Create a Verification of a topic and follow it to its first verdict; or show one."""
    if show is not None:
        return partial(verbs_verify.show, name=show)
    if resume is not None:
        return _Following(partial(verbs_verify.begin_again, earlier=resume))
    if topic is None:
        raise typer.BadParameter(
            "the command needs a topic to verify; name one, or give --resume or --show VERIFICATION"
        )
    work = verbs_verify.Workload(
        topic=topic,
        records=options.records,
        per_second=options.rate,
        allow_existing=options.allow_existing,
        user=options.user,
        window=options.window if options.continuous else None,
    )
    return _Following(partial(verbs_verify.begin, work=work))


@verb("audit")
def audit(
    pattern: Annotated[str, typer.Argument(help="Regular expression for the topics' whole names.")],
    rate: Annotated[
        str | None,
        typer.Option(
            help="Most bytes per second that the audit reads, of all brokers together, as 50Mi."
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="The User to log in as, if the listeners require a login.")
    ] = None,
) -> Act:
    """Audit existing topics on every replica's disk and follow to the verdict; writes nothing."""
    work = verbs_verify.Auditing(pattern=pattern, rate=rate, user=user)
    return _Following(partial(verbs_verify.begin, work=work))


@verb("schedules")
def schedules() -> Act:
    """List VerificationSchedules: their times, last verdicts and figures."""
    return verbs_schedules.schedules


@verb("restore-metadata")
def restore_metadata(
    confirm: Annotated[
        str | None,
        typer.Option(
            help="Restore this history, named as this command shows it without --confirm."
        ),
    ] = None,
    from_backup: Annotated[
        str | None,
        typer.Option(help="Ask for a point of the backup: newest, a time, or a metadata offset."),
    ] = None,
) -> Act:
    """Show which history of lost metadata can be restored and what is given up; confirm one."""
    return partial(verbs_recovery.restore_metadata, confirm=confirm, from_backup=from_backup)


@verb("report")
def report(
    file: Annotated[
        Path,
        typer.Option("--file", "-f", help=("The archive to write; the file must not exist yet.")),
    ] = Path("plimsoll-report.tar.gz"),
) -> Act:
    """Write an archive for a bug report: these views, objects and Events; no secrets."""
    return partial(report_bundle.bundle, path=file)


class _Following:
    """Repeated action of the verb `verify`: the first call creates the Verification, and each call
    shows its progress, until it has ended."""

    follows = True

    def __init__(self, begin: Callable[[PluginSession], Awaitable[str]]) -> None:
        """`begin`: creates the Verification and returns its name."""
        self._begin = begin
        self._name = ""

    async def __call__(self, session: PluginSession) -> Findings:
        if not self._name:
            self._name = await self._begin(session)
        return await verbs_verify.progress(session, self._name)


def _run(wishes: CommonOptions, act: Act) -> None:
    try:
        code = asyncio.run(_show(wishes, act))
    except (Problem, NoCluster) as error:
        typer.echo(shown.visible(str(error)), err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    raise typer.Exit(code)


async def _show(wishes: CommonOptions, act: Act) -> int:
    session = await connect(wishes)
    try:
        if wishes.watch or getattr(act, "follows", False):
            return await _follow(session, wishes, act)
        found = await act(session)
        _print(found, wishes.output)
        return found.code
    finally:
        await session.close()


async def _follow(session: PluginSession, wishes: CommonOptions, act: Act) -> int:
    """Repeat a verb until it has nothing more to show, and return the exit code. A terminal shows a
    live view; elsewhere each output that differs from the last is printed."""
    console = shown.console()
    last: str | None = None
    live = console.is_terminal and wishes.output is None
    with Live(console=console, auto_refresh=False, transient=False) as view:
        while True:
            found = await act(session)
            if live:
                view.update(shown.group(found), refresh=True)
            else:
                said = shown.as_text(found.data, wishes.output or "json")
                if said != last:
                    _print(found, wishes.output)
                last = said
            if found.over:
                return found.code
            await asyncio.sleep(WATCH_S)


def _print(found: Findings, output: str | None) -> None:
    if output is not None:
        typer.echo(shown.as_text(found.data, output))
    elif found.raw:
        typer.echo(found.raw, nl=False)
    else:
        shown.console().print(shown.group(found))
    sys.stdout.flush()


def main() -> None:
    """Run `kubectl plimsoll`: the entry point of the installed command."""
    app()


if __name__ == "__main__":
    main()
