"""DescribeAcls, CreateAcls, DeleteAcls: read from this broker's image, changed by the controller.

A change is answered once this broker sees it. If authorization is off the answer is
SECURITY_DISABLED, as from Kafka without an authorizer. Source: KIP-140; `AclApis`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar

from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.forward import forward_security
from plimsoll_broker.handlers.long_work import things
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import Answer, Refused
from plimsoll_core.messages.security import AclsChanged, CreateAcls, DeleteAcls, DeletedAcl
from plimsoll_core.security.acl import (
    ANY_NUMBER,
    MATCH_NUMBER,
    OPERATION_NUMBERS,
    PATTERN_NUMBERS,
    PERMISSION_NUMBERS,
    RESOURCE_NUMBERS,
    Acl,
    AclFilter,
    malformed,
)
from plimsoll_core.security.state import Mode
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response

_DISABLED = (
    "ACLs cannot be used, because authorization is off. To turn it on, set "
    "spec.authorization.mode of the LogCluster."
)
_PATTERN_OF_VERSION_0 = 3
_E = TypeVar("_E", bound=Enum)


class _NoForm(Exception):
    """Raised for a malformed ACL or filter in a request; the message says what is wrong."""


def _by_number(numbers: Mapping[_E, int], what: str, number: int) -> _E:
    found = next((value for value, known in numbers.items() if known == number), None)
    if found is None:
        raise _NoForm(f"The ACL states an unknown {what}: {number}.")
    return found


def _any_by_number(numbers: Mapping[_E, int], what: str, number: int) -> _E | None:
    return None if number == ANY_NUMBER else _by_number(numbers, what, number)


def _acl(asked: Any) -> Acl:
    pattern = getattr(asked, "resource_pattern_type", _PATTERN_OF_VERSION_0)
    return Acl(
        resource=_by_number(RESOURCE_NUMBERS, "resource type", asked.resource_type),
        name=asked.resource_name,
        pattern=_by_number(PATTERN_NUMBERS, "pattern type", pattern),
        principal=asked.principal,
        host=asked.host,
        operation=_by_number(OPERATION_NUMBERS, "operation", asked.operation),
        permission=_by_number(PERMISSION_NUMBERS, "permission", asked.permission_type),
    )


def _filter(asked: Any) -> AclFilter:
    pattern = getattr(asked, "pattern_type_filter", _PATTERN_OF_VERSION_0)
    kind = getattr(asked, "resource_type_filter", ANY_NUMBER)
    matching = pattern == MATCH_NUMBER
    return AclFilter(
        resource=_any_by_number(RESOURCE_NUMBERS, "resource type", kind),
        name=asked.resource_name_filter,
        pattern=None if matching else _any_by_number(PATTERN_NUMBERS, "pattern type", pattern),
        matches_name=matching,
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=_any_by_number(OPERATION_NUMBERS, "operation", asked.operation),
        permission=_any_by_number(PERMISSION_NUMBERS, "permission", asked.permission_type),
    )


def _rule(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": OPERATION_NUMBERS[acl.operation],
        "permission_type": PERMISSION_NUMBERS[acl.permission],
    }


def _resource(acl: Acl) -> dict[str, Any]:
    return {
        "resource_type": RESOURCE_NUMBERS[acl.resource],
        "resource_name": acl.name,
        "pattern_type": PATTERN_NUMBERS[acl.pattern],
    }


def _off(view: ClusterView) -> bool:
    return view.image.security.authorization.mode is Mode.OFF


def describe_acls(view: ClusterView) -> Handler:
    async def handle(context: RequestContext) -> bytes:
        request = await view.aside.decoded(context)
        acls = view.image.security.acls
        off = _off(view)
        return await view.aside.some(
            len(acls), lambda: _described(request, context.api_version, acls, off=off)
        )

    return handle


def _described(request: Any, version: int, acls: Collection[Acl], *, off: bool) -> bytes:
    code, message = Code.NONE, None
    found: list[Acl] = []
    try:
        wanted = _filter(request)
    except _NoForm as error:
        code, message = Code.INVALID_REQUEST, str(error)
    else:
        if off:
            code, message = Code.SECURITY_DISABLED, _DISABLED
        else:
            found = [acl for acl in acls if wanted.matches(acl)]
    values = {"error_code": code, "error_message": message, "resources": _grouped(found)}
    return encode_response(ApiKey.DESCRIBE_ACLS, version, values)


def _grouped(acls: Iterable[Acl]) -> list[dict[str, Any]]:
    """Return the response's entries of these ACLs, grouped by resource."""
    resources: dict[tuple[Any, ...], dict[str, Any]] = {}
    for acl in sorted(acls, key=lambda one: one.order):
        resource = _resource(acl)
        found = resources.setdefault(tuple(resource.values()), {**resource, "acls": []})
        found["acls"].append(_rule(acl))
    return list(resources.values())


def create_acls(view: ClusterView) -> Handler:
    """Return the handler of CreateAcls. Well-formed ACLs are created by one command; each malformed
    one is refused by itself."""

    async def handle(context: RequestContext) -> bytes:
        many = things(context)
        request = await view.aside.decoded(context)
        wanted, told = await view.aside.some(many, lambda: _creations(request))
        if wanted:
            answer: Answer = _refused_as_off(view) or await forward_security(
                view, context, CreateAcls(acls=tuple(wanted.values()))
            )
            code, message = _outcome(answer)
            told |= dict.fromkeys(wanted, (code, message))

        def answered() -> bytes:
            results = [
                {"error_code": told[at][0], "error_message": told[at][1]}
                for at in range(len(request.creations))
            ]
            return encode_response(ApiKey.CREATE_ACLS, context.api_version, {"results": results})

        return await view.aside.some(many, answered)

    return handle


_Told = dict[int, tuple[int, str | None]]
"""The error code and message of each ACL, by its position in the request."""


def _creations(request: Any) -> tuple[dict[int, Acl], _Told]:
    """Return the well-formed ACLs of the request, and the errors of the malformed ones, each by its
    position in the request; every position is in one of the two."""
    wanted: dict[int, Acl] = {}
    told: _Told = {}
    for at, asked in enumerate(request.creations):
        try:
            acl = _acl(asked)
            if text := malformed(acl):
                raise _NoForm(text)
            wanted[at] = acl
        except _NoForm as error:
            told[at] = (Code.INVALID_REQUEST, str(error))
    return wanted, told


def delete_acls(view: ClusterView) -> Handler:
    """Return the handler of DeleteAcls. One command deletes the ACLs that match any well-formed
    filter, except those that Kubernetes objects declare; each malformed filter is refused by
    itself."""

    async def handle(context: RequestContext) -> bytes:
        many = things(context)
        request = await view.aside.decoded(context)
        wanted, results = await view.aside.some(many, lambda: _filters(request))
        answer: Answer | None = None
        if wanted:
            answer = _refused_as_off(view) or await forward_security(
                view, context, DeleteAcls(filters=tuple(wanted.values()))
            )

        def answered() -> bytes:
            if isinstance(answer, AclsChanged):
                for at, found in zip(wanted, answer.deleted, strict=True):
                    results[at] = {**_no_matches(0, None), "matching_acls": _matches(found)}
            elif answer is not None:
                code, message = _outcome(answer)
                results.update({at: _no_matches(code, message) for at in wanted})
            values = {"filter_results": [results[at] for at in range(len(request.filters))]}
            return encode_response(ApiKey.DELETE_ACLS, context.api_version, values)

        gone = sum(map(len, answer.deleted)) if isinstance(answer, AclsChanged) else 0
        return await view.aside.some(many + gone, answered)

    return handle


def _filters(request: Any) -> tuple[dict[int, AclFilter], dict[int, dict[str, Any]]]:
    """Return the well-formed filters of the request, and the error results of the malformed ones,
    each by its position in the request; every position is in one of the two."""
    wanted: dict[int, AclFilter] = {}
    results: dict[int, dict[str, Any]] = {}
    for at, asked in enumerate(request.filters):
        try:
            wanted[at] = _filter(asked)
        except _NoForm as error:
            results[at] = _no_matches(Code.INVALID_REQUEST, str(error))
    return wanted, results


def _matches(found: tuple[DeletedAcl, ...]) -> list[dict[str, Any]]:
    return [
        {
            "error_code": one.code,
            "error_message": one.message or None,
            **_resource(one.acl),
            **_rule(one.acl),
        }
        for one in found
    ]


def _no_matches(code: int, message: str | None) -> dict[str, Any]:
    return {"error_code": code, "error_message": message, "matching_acls": []}


def _refused_as_off(view: ClusterView) -> Refused | None:
    if not _off(view):
        return None
    return Refused(reason="SecurityDisabled", code=Code.SECURITY_DISABLED, message=_DISABLED)


def _outcome(answer: Answer) -> tuple[int, str | None]:
    if isinstance(answer, Refused):
        return answer.code, answer.message
    assert isinstance(answer, AclsChanged), f"the controller answered {answer}"
    return Code.NONE, None
