"""DescribeClientQuotas and AlterClientQuotas: read from this broker's image, changed by the
controller.

A change is answered once this broker sees it. Source: KIP-546; `ClientQuotasImage`,
`ClientQuotaControlManager` of Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.forward import forward_security
from plimsoll_broker.handlers.long_work import things
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import Answer, Refused
from plimsoll_core.messages.security import AlterQuotas, QuotaChange, QuotasAltered
from plimsoll_core.quotas.form import address, malformed_entity, malformed_value
from plimsoll_core.quotas.state import DEFAULT, QuotaEntity, QuotaRow
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response

_TYPES = ("user", "client-id", "ip")
_KEYS = (
    "consumer_byte_rate",
    "request_percentage",
    "producer_byte_rate",
    "controller_mutation_rate",
    "connection_creation_rate",
)
"""The quota names in Kafka's order, where `client-id` comes before `user`, too: some clients' own
tests compare lists."""
_EXACT, _DEFAULT, _ANY = 0, 1, 2


class _BadQuota(Exception):
    """Raised for a malformed entity, filter or value in a request; the message says what is
    wrong."""

    def __init__(self, message: str, code: int = Code.INVALID_REQUEST) -> None:
        super().__init__(message)
        self.code = code


# --- describing ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Filter:
    """The quotas that a DescribeClientQuotas request selects. `names`: the required name by entity
    type; None for any name. `strict`: True if entities with further types are not selected."""

    names: Mapping[str, str | None]
    strict: bool

    def matches(self, row: QuotaRow) -> bool:
        parts = row.entity.parts
        if self.strict and len(parts) != len(self.names):
            return False
        for kind, name in self.names.items():
            if kind not in parts or (name is not None and (parts[kind] or DEFAULT) != name):
                return False
        return True


def _filter(request: Any) -> _Filter:
    names: dict[str, str | None] = {}
    for one in request.components:
        kind = one.entity_type
        if kind not in _TYPES:
            text = f"Unsupported entity type {kind[:100]!r}: use user, client-id or ip."
            raise _BadQuota(text, Code.UNSUPPORTED_VERSION)
        if kind in names:
            raise _BadQuota(f"Entity type {kind} cannot appear more than once in the filter.")
        if one.match_type == _EXACT:
            if not one.match:
                raise _BadQuota("A quota filter with an exact match must state a name.")
            names[kind] = address(one.match) or one.match if kind == "ip" else one.match
        elif one.match_type in (_DEFAULT, _ANY):
            names[kind] = DEFAULT if one.match_type == _DEFAULT else None
        else:
            raise _BadQuota(
                f"The quota filter states an unknown match type, {one.match_type}; use 0 (exact), "
                "1 (default) or 2 (any)."
            )
    if "ip" in names and len(names) > 1:
        raise _BadQuota("A filter for ip cannot be combined with user or client-id.")
    return _Filter(names, request.strict)


def describe_quotas(view: ClusterView) -> Handler:
    async def handle(context: RequestContext) -> bytes:
        many = things(context)
        request = await view.aside.decoded(context)
        rows = view.image.quotas.rows
        answer = partial(_described, request, context.api_version, rows.values())
        return await view.aside.some(many + len(rows), answer)

    return handle


def _described(request: Any, version: int, rows: Iterable[QuotaRow]) -> bytes:
    code, message, entries = Code.NONE, None, None
    try:
        entries = _entries(rows, _filter(request))
    except _BadQuota as error:
        code, message = Code(error.code), str(error)
    values = {"error_code": code, "error_message": message, "entries": entries}
    return encode_response(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, values)


def _entries(rows: Iterable[QuotaRow], wanted: _Filter) -> list[dict[str, Any]]:
    found = sorted((row for row in rows if wanted.matches(row)), key=lambda row: row.entity.order)
    return [
        {
            "entity": _told(row.entity.parts.items()),
            "values": [
                {"key": key, "value": value}
                for key, value in sorted(row.values.items(), key=lambda item: _KEYS.index(item[0]))
            ],
        }
        for row in found
    ]


def _told(parts: Iterable[tuple[str, str | None]]) -> list[dict[str, Any]]:
    found = sorted(parts, key=lambda part: part[0])
    return [{"entity_type": kind, "entity_name": name} for kind, name in found]


# --- changing ------------------------------------------------------------------------------------


def _change(entry: Any) -> QuotaChange:
    names: dict[str, str] = {}
    for part in entry.entity:
        kind, name = part.entity_type, part.entity_name
        if kind not in _TYPES:
            raise _BadQuota(
                f"Unhandled client quota entity type: {kind[:100]!r}; use user, client-id or ip."
            )
        if kind in names:
            raise _BadQuota(f"Invalid client quota entity, duplicate entity entry {kind}.")
        if name == "":
            raise _BadQuota(f"The quota's entity has an empty {kind}, which is not supported.")
        names[kind] = DEFAULT if name is None else name
    ip = names.get("ip")
    entity = QuotaEntity(
        user=names.get("user"),
        client_id=names.get("client-id"),
        ip=None if ip is None else address(ip) or ip,
    )
    values: dict[str, float | None] = {}
    if text := malformed_entity(entity):
        raise _BadQuota(text)
    for op in entry.ops:
        if op.key in values:
            raise _BadQuota(f"The request names the quota {op.key[:100]!r} twice; name it once.")
        values[op.key] = None if op.remove else op.value
        if text := malformed_value(entity, op.key, values[op.key]):
            raise _BadQuota(text)
    return QuotaChange(entity=entity, values=values)


def alter_quotas(view: ClusterView) -> Handler:
    """Return the handler of AlterClientQuotas. Each entity succeeds or fails by itself; the
    controller decides about the well-formed ones."""

    async def handle(context: RequestContext) -> bytes:
        many = things(context)
        request = await view.aside.decoded(context)
        wanted, told = await view.aside.some(many, partial(_changes, request))
        if wanted:
            command = AlterQuotas(
                changes=tuple(wanted.values()), validate_only=request.validate_only
            )
            answer = await forward_security(view, context, command)
            told |= dict(zip(wanted, _outcomes(answer, len(wanted)), strict=True))
        return await view.aside.some(many, partial(_altered, request, context.api_version, told))

    return handle


_Outcomes = dict[int, tuple[int, str | None]]
"""The error code and message of each entity, by its position in the request."""


def _changes(request: Any) -> tuple[dict[int, QuotaChange], _Outcomes]:
    """Return the well-formed changes of the request, and the errors of the malformed ones, each by
    its position in the request; every position is in one of the two."""
    wanted: dict[int, QuotaChange] = {}
    told: _Outcomes = {}
    for at, entry in enumerate(request.entries):
        try:
            wanted[at] = _change(entry)
        except _BadQuota as error:
            told[at] = (error.code, str(error))
    return wanted, told


def _altered(request: Any, version: int, told: _Outcomes) -> bytes:
    entries = [
        {
            "error_code": told[at][0],
            "error_message": told[at][1],
            "entity": _told((part.entity_type, part.entity_name) for part in entry.entity),
        }
        for at, entry in enumerate(request.entries)
    ]
    return encode_response(ApiKey.ALTER_CLIENT_QUOTAS, version, {"entries": entries})


def _outcomes(answer: Answer, count: int) -> list[tuple[int, str | None]]:
    if isinstance(answer, Refused):
        return [(answer.code, answer.message)] * count
    assert isinstance(answer, QuotasAltered), f"the controller answered {answer}"
    return [(one.code, one.message or None) for one in answer.entities]
