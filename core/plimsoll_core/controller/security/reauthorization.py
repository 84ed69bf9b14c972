"""Checks a forwarded request against the committed rights and login of its client.

Called by `decide` before a forwarded request is decided, with the same image: rights that were
withdrawn after the broker's own check apply. The user may have been disabled, or its password
changed, while the request was under way. A request without a client is refused while rights are
enforced: its broker does not know of the enforcement yet. If a part of the request is refused, all
of it is: the broker has already left out the parts that the client may not use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.record_versions import introduced
from plimsoll_core.cluster.records import ScramCredentialSet
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.elections import ElectLeaders
from plimsoll_core.messages.moves import AlterReassignments
from plimsoll_core.messages.requests import CreateTopics, DeleteTopics
from plimsoll_core.messages.security import (
    AlterQuotas,
    AlterScramCredentials,
    CreateAcls,
    DeleteAcls,
    OnBehalf,
)
from plimsoll_core.messages.topics import AddPartitions, AlterTopicConfigs
from plimsoll_core.security.acl import ANONYMOUS, CLUSTER_NAME, AclOperation, ResourceType
from plimsoll_core.security.acl_index import AclQuestion
from plimsoll_core.security.state import Mode

_Needed = tuple[AclOperation, ResourceType, str]
_Op, _Type = AclOperation, ResourceType
_REASONS = {
    _Type.TOPIC: Reason.TopicAuthorizationFailed,
    _Type.CLUSTER: Reason.ClusterAuthorizationFailed,
}

_NOBODY = Refusal(
    reason=Reason.ClusterAuthorizationFailed,
    message=(
        "The broker forwarded this request without stating which client sent it, so the client's "
        "rights cannot be checked. Retry, or use another broker."
    ),
)


def refused_again(image: ClusterImage, request: Any) -> Refusal | None:
    """Return a refusal if the client of a forwarded request has no valid login or, while rights are
    enforced, is not stated or lacks a right that the request needs. Return None otherwise, and for
    requests that need no client's rights."""
    needed = _NEEDED.get(type(request))
    if needed is None:
        return None
    enforced = image.security.authorization.mode is Mode.ENFORCE
    behalf: OnBehalf | None = request.behalf
    if behalf is None:
        return _NOBODY if enforced else None
    if not _is_logged_in(image, behalf):
        text = f"The login of {behalf.principal} is no longer valid. Log in again."
        return Refusal(reason=Reason.ClusterAuthorizationFailed, message=text)
    if not enforced:
        return None
    for each in needed(image, request):
        if not any(_allowed(image, behalf, *one) for one in each):
            operation, kind, name = each[0]
            text = (
                f"{behalf.principal} has no right to this request: an ACL must allow the "
                f"operation {operation.value} on {kind.value} {name}."
            )
            return Refusal(reason=_REASONS[kind], message=text)
    return None


def _is_logged_in(image: ClusterImage, behalf: OnBehalf) -> bool:
    """Return True if the client's login is still valid. `behalf.login` identifies the login. It is
    empty for a client of a listener without authentication, which must be anonymous."""
    if not behalf.login and image.metadata_version >= introduced(ScramCredentialSet):
        open_to_all = (not one.authentication for one in image.listeners)
        return behalf.principal == ANONYMOUS and (not image.listeners or any(open_to_all))
    user = behalf.principal.removeprefix("User:")
    return image.security.login_is_good(user, behalf.login)


def _allowed(
    image: ClusterImage, behalf: OnBehalf, operation: AclOperation, kind: ResourceType, name: str
) -> bool:
    asked = AclQuestion(behalf.principal, behalf.host, operation, kind, name)
    return image.security.allows(asked)


# --- what each request needs: of each row one ----------------------------------------------------

_Rows = Iterator[tuple[_Needed, ...]]


def _cluster(operation: AclOperation) -> Callable[[ClusterImage, Any], _Rows]:
    def needed(_: ClusterImage, request: Any) -> _Rows:
        yield ((operation, _Type.CLUSTER, CLUSTER_NAME),)

    return needed


def _created(_: ClusterImage, request: CreateTopics) -> _Rows:
    for topic in request.topics:
        yield (
            (_Op.CREATE, _Type.TOPIC, topic.name),
            (_Op.CREATE, _Type.CLUSTER, CLUSTER_NAME),
        )


def _deleted(image: ClusterImage, request: DeleteTopics) -> _Rows:
    known = (image.topics.get(topic_id) for topic_id in request.ids)
    for name in (*request.names, *(topic.name for topic in known if topic is not None)):
        needed = ((_Op.DELETE, _Type.TOPIC, name), (_Op.DELETE, _Type.CLUSTER, CLUSTER_NAME))
        # A client that may describe a topic is told if it does not exist.
        described = (_Op.DESCRIBE, _Type.TOPIC, name)
        yield needed if name in image.topic_ids else (*needed, described)


def _configured(_: ClusterImage, request: AlterTopicConfigs) -> _Rows:
    for topic in request.topics:
        yield ((_Op.ALTER_CONFIGS, _Type.TOPIC, topic.topic),)


def _grown(_: ClusterImage, request: AddPartitions) -> _Rows:
    for topic in request.topics:
        yield ((_Op.ALTER, _Type.TOPIC, topic.topic),)


_NEEDED: dict[type, Callable[[ClusterImage, Any], _Rows]] = {
    CreateTopics: _created,
    DeleteTopics: _deleted,
    AlterTopicConfigs: _configured,
    AddPartitions: _grown,
    ElectLeaders: _cluster(_Op.ALTER),
    AlterReassignments: _cluster(_Op.ALTER),
    CreateAcls: _cluster(_Op.ALTER),
    DeleteAcls: _cluster(_Op.ALTER),
    AlterScramCredentials: _cluster(_Op.ALTER),
    AlterQuotas: _cluster(_Op.ALTER_CONFIGS),
}
