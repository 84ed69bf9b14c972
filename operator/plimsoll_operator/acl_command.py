"""`plimsoll acl explain`: shows whether a principal may do an operation, and the rule (ACL) that
decides it.

Without options the leading operator answers from all committed rules, whether they come from User
objects or from clients. `--declared` uses only the LogCluster and its Users, and needs no operator.
Exit codes: 0 if allowed, 1 if denied, 2 for an invalid question or if no answer can be had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, NamedTuple, NoReturn

import msgspec
import typer

from plimsoll_core.security.acl_index import AclQuestion
from plimsoll_operator.api.load import Unreadable, from_object, readable_part
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.tenancy import needs_labels
from plimsoll_operator.api.user import User
from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.kube_api import KubeApi, Object, Transport
from plimsoll_operator.kube.resources import LOG_CLUSTERS, NAMESPACES, USERS
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.kubectl_plugin.shown import Format, Problem, ViewUnavailable, as_text, told
from plimsoll_operator.kubectl_plugin.view_client import OPERATOR_NAMESPACE, ViewClient, view_of
from plimsoll_operator.rights_explanation import (
    Explanation,
    declared,
    explanation,
    question,
    resource_text,
)

UNREAD_NAMED_MAX = 5
BY_OBJECTS = (
    "This answer is based on the LogCluster and its User objects only: it leaves out ACLs that "
    "clients created, and those of recently deleted Users."
)

app = typer.Typer(name="acl", no_args_is_help=True)


class RightsFound(NamedTuple):
    """The answer to one `acl explain`. `notes`: sentences for the user about the source of the
    answer, and about the objects that it leaves out."""

    explanation: Explanation
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return " ".join((self.explanation.sentence, *self.notes))

    @property
    def data(self) -> Object:
        fields: Object = msgspec.to_builtins(self.explanation)
        return {**fields, "sentence": self.explanation.sentence, "notes": self.notes}


@app.callback()
def acl() -> None:
    """Show the rights of a LogCluster's users. See `plimsoll acl explain --help`."""


@app.command("explain")
def explain_command(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="LOGCLUSTER PRINCIPAL OPERATION RESOURCE",
            help="For example: main User:alice Read Topic:orders. OPERATION is Kafka's (Read,"
            " Write, …); RESOURCE is Topic:NAME, Group:NAME, … or Cluster.",
        ),
    ],
    host: Annotated[str, typer.Option(help="The client's address; default: any.")] = "*",
    namespace: Annotated[str, typer.Option("--namespace", "-n")] = "default",
    operator_namespace: Annotated[
        str,
        typer.Option(
            envvar="PLIMSOLL_OPERATOR_NAMESPACE",
            help="The operator's namespace (where the chart is installed).",
        ),
    ] = OPERATOR_NAMESPACE,
    by_objects: Annotated[
        bool,
        typer.Option(
            "--declared",
            help="Tell what the LogCluster and its User objects allow, without asking the "
            "operator; rules that clients created are then left out.",
        ),
    ] = False,
    output: Annotated[
        Format | None,
        typer.Option("--output", "-o", help="Machine-readable output; default: a sentence."),
    ] = None,
) -> None:
    """Explain whether a principal may do something: the decisive rule, or the missing one.

    The operator answers from all committed rules, including those that clients created. The command
    uses the kubeconfig's current context.
    """
    try:
        cluster, principal, operation, resource = words
    except ValueError:
        _fail(
            "Name a LogCluster, a principal, an operation and a resource:"
            " main User:alice Read Topic:orders."
        )
    try:
        asked = question(principal, host, operation, resource)
    except ValueError as error:
        _fail(str(error))
    where = None if by_objects else operator_namespace
    found = asyncio.run(_answered((namespace, cluster), asked, where))
    typer.echo(found.text if output is None else as_text(found.data, output.value))
    if not found.explanation.allowed:
        raise typer.Exit(1)


async def _answered(key: Key, asked: AclQuestion, operator_namespace: str | None) -> RightsFound:
    """Answer the question for the LogCluster `key`: from the operator's view, or, if
    `operator_namespace` is None, from the LogCluster and its User objects. End the command with
    exit code 2 on any error."""
    # The official client takes half a second to import, for which no other command should wait.
    from plimsoll_operator.kube.official_transport import NoCluster, OfficialTransport, find_access

    try:
        transport = OfficialTransport(await find_access())
    except NoCluster as error:
        _fail(str(error))
    try:
        if operator_namespace is None:
            return await by_declaration(KubeApi(transport), key, asked)
        return await _by_the_view(transport, key, asked, operator_namespace)
    except NotFound:
        _fail(
            f"There is no LogCluster {key[1]} in namespace {key[0]}; choose another namespace "
            "with -n."
        )
    except ApiError as error:
        _fail(f"LogCluster {key[1]} cannot be read from the API server: {told(error)}")
    except (Unreadable, Problem) as error:
        _fail(str(error))
    finally:
        await transport.close()


async def _by_the_view(
    transport: Transport, key: Key, asked: AclQuestion, operator_namespace: str
) -> RightsFound:
    await KubeApi(transport).get(LOG_CLUSTERS, *key)  # a missing LogCluster has no leader
    view = await view_of(transport, operator_namespace)
    try:
        return await by_what_is_committed(view, key, asked)
    except ViewUnavailable as error:
        hint = "--declared answers from the LogCluster and its User objects only."
        raise ViewUnavailable(f"{error} {hint}") from error


async def by_what_is_committed(view: ViewClient, key: Key, asked: AclQuestion) -> RightsFound:
    """Return the answer that the leading operator gives from all committed rules. Raises `Problem`
    if no operator answers, or if it refuses the question."""
    params = {
        "principal": asked.principal,
        "host": asked.host,
        "operation": asked.operation.value,
        "resource": resource_text(asked),
    }
    answer = await view.get(f"/v1/clusters/{key[0]}/{key[1]}/rights", params)
    try:
        return RightsFound(msgspec.convert(answer, Explanation))
    except msgspec.ValidationError as error:
        raise Problem(
            f"The plugin does not know the operator's answer, as their releases differ: {error}. "
            "Use the kubectl plugin of the operator's release."
        ) from error


async def by_declaration(kube: KubeApi, key: Key, asked: AclQuestion) -> RightsFound:
    """Return the answer that follows from the LogCluster `key` and its User objects. An unreadable
    User is left out and named in the notes. Raises ApiError if an object cannot be fetched,
    Unreadable if the LogCluster is invalid."""
    namespace = key[0]
    cluster = from_object(await kube.get(LOG_CLUSTERS, *key), LogCluster)
    elsewhere = cluster.spec.users is not None
    listed = await kube.list(USERS, None if elsewhere else namespace)
    users, unread = _readable(listed.items, key)
    labels: dict[str, dict[str, str]] = {}
    if needs_labels(cluster):
        for other in {one.metadata.namespace for one in users} - {namespace}:
            labels[other] = await _labels(kube, other)
    found = explanation(declared(cluster, users, labels), asked)
    return RightsFound(found, (BY_OBJECTS, *_unread(unread)))


def _unread(users: tuple[str, ...]) -> tuple[str, ...]:
    if not users:
        return ()
    more = len(users) - UNREAD_NAMED_MAX
    rest = f" and {more} more" if more > 0 else ""
    named = ", ".join(users[:UNREAD_NAMED_MAX])
    return (
        f"These User objects are invalid, so this answer leaves out their rules: {named}{rest}. "
        "Correct them, and ask again.",
    )


def _readable(items: Iterable[Object], key: Key) -> tuple[list[User], tuple[str, ...]]:
    """Return the Users among `items` that can be decoded, and `User NAMESPACE/NAME` of each that
    cannot, unless its readable part names another LogCluster than `key`."""
    users, unread = [], []
    for one in items:
        try:
            users.append(from_object(one, User))
        except Unreadable:
            part = readable_part(one, User)
            if part is None or part[0].cluster_key == key:
                meta = one["metadata"]
                unread.append(f"User {meta['namespace']}/{meta['name']}")
    return users, tuple(unread)


async def _labels(kube: KubeApi, namespace: str) -> dict[str, str]:
    try:
        body = await kube.get(NAMESPACES, None, namespace)
    except NotFound:
        return {}  # it has just gone, and its Users with it
    return dict(body["metadata"].get("labels") or {})


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(2)
