"""`plimsoll acl explain`: reads a LogCluster and its Users by the kubeconfig's current context, and
says which rule decides.  Exit codes: 0 when it may, 1 when it may not, 2 for what cannot be asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, NoReturn

import typer

from plimsoll_core.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from plimsoll_core.security.acl_index import AclQuestion
from plimsoll_operator.api.load import Unreadable, from_object, readable_part
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.tenancy import needs_labels
from plimsoll_operator.api.user import User
from plimsoll_operator.declared_rights import Explanation, explain
from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.kube_client import Kube
from plimsoll_operator.kube.port import KubeApi, Object
from plimsoll_operator.kube.resources import LOG_CLUSTERS, NAMESPACES, USERS
from plimsoll_operator.kube.seen_objects import Key

app = typer.Typer(name="acl", no_args_is_help=True)


@app.callback()
def acl() -> None:
    """What users of a LogCluster may do."""


@app.command("explain")
def explain_command(
    cluster: Annotated[str, typer.Argument(help="The LogCluster.")],
    principal: Annotated[str, typer.Argument(help="Such as User:alice.")],
    operation: Annotated[str, typer.Argument(help="Kafka's word: Read, Write, Describe, …")],
    resource: Annotated[str, typer.Argument(help="Topic:NAME, Group:NAME, … or Cluster.")],
    host: Annotated[str, typer.Option(help="The client's address.")] = "*",
    namespace: Annotated[str, typer.Option("--namespace", "-n")] = "default",
) -> None:
    """Which declared rule lets a principal do something, or would be needed for it.

    Reads the LogCluster and the User objects of its namespace, where it has spec.users those of all
    namespaces, by the kubeconfig's current context.
    """
    try:
        asked = question(principal, host, operation, resource)
    except ValueError as error:
        _fail(str(error))
    found = asyncio.run(_read_and_explain(namespace, cluster, asked))
    typer.echo(found.sentence)
    if not found.allowed:
        raise typer.Exit(1)


def question(principal: str, host: str, operation: str, resource: str) -> AclQuestion:
    """Raises ValueError with a sentence."""
    kind, _, name = resource.partition(":")
    operations = {one.value: one for one in AclOperation}
    kinds = {one.value: one for one in ResourceType}
    if operation not in operations:
        raise ValueError(f"There is no operation {operation}; there are: {', '.join(operations)}.")
    if kind not in kinds or (kind == ResourceType.CLUSTER.value) == bool(name):
        raise ValueError("A resource is Cluster, or a type and a name: Topic:orders, Group:mine.")
    return AclQuestion(principal, host, operations[operation], kinds[kind], name or CLUSTER_NAME)


async def _read_and_explain(namespace: str, cluster: str, asked: AclQuestion) -> Explanation:
    # The official client takes half a second to import, for which no other command should wait.
    from plimsoll_operator.kube.access import NoCluster, find_access
    from plimsoll_operator.kube.official import OfficialTransport

    try:
        transport = OfficialTransport(await find_access())
    except NoCluster as error:
        _fail(str(error))
    try:
        return await read_and_explain(Kube(transport), namespace, cluster, asked)
    except (ApiError, Unreadable, ValueError) as error:
        _fail(str(error))
    finally:
        await transport.close()


async def read_and_explain(
    kube: KubeApi, namespace: str, cluster: str, asked: AclQuestion
) -> Explanation:
    """Of Users one by one what can be read: no owner of one decides whether others get an answer.
    Raises ApiError, Unreadable, ValueError."""
    found = from_object(await kube.get(LOG_CLUSTERS, namespace, cluster), LogCluster)
    elsewhere = found.spec.users is not None
    listed = await kube.list(USERS, None if elsewhere else namespace)
    users, unread = _readable(listed.items, (namespace, cluster))
    labels: dict[str, dict[str, str]] = {}
    if needs_labels(found):
        for other in {one.metadata.namespace for one in users} - {namespace}:
            labels[other] = await _labels(kube, other)
    return explain(found, users, asked, labels)._replace(unread=unread)


def _readable(items: Iterable[Object], key: Key) -> tuple[list[User], tuple[str, ...]]:
    """And the names of those that are not, without those that are surely another cluster's."""
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
