"""The part of `LogCluster` about clients' rights: `spec.authorization`.

`committed` converts it for the metadata log.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_core.security.state import Authorization, Mode
from plimsoll_operator.api.meta import Api, described

PrincipalName = Annotated[str, Meta(min_length=3, max_length=256, pattern=r"^[A-Za-z]+:.+$")]


class DeclaredAuthorization(Api, frozen=True, kw_only=True):
    """Authorization of clients. Its rules (ACLs) come from User objects and from Kafka's tools."""

    mode: Annotated[
        Literal["Off", "Audit", "Enforce"] | None,
        described(
            "Off (default): every client may do everything. Audit: brokers log what "
            "Enforce would refuse, and carry it out. Enforce: brokers refuse what no rule "
            "allows."
        ),
    ] = None
    super_users: Annotated[
        Annotated[
            tuple[PrincipalName, ...],
            Meta(max_length=32, extra_json_schema={"x-kubernetes-list-type": "set"}),
        ]
        | None,
        described("Principals that may do everything, such as User:admin."),
    ] = None
    allow_everyone_if_no_acl: Annotated[
        bool | None,
        described(
            "true: every client may use a resource that no rule names (Kafka's "
            "allow.everyone.if.no.acl.found). Default false."
        ),
    ] = None


def committed(declared: DeclaredAuthorization | None, disguise: bytes) -> Authorization:
    """Convert `spec.authorization` into the value that the metadata log holds. `disguise`: the
    random bytes to store in it."""
    if declared is None:
        return Authorization(disguise=disguise)
    return Authorization(
        mode=Mode(declared.mode or "Off"),
        super_users=tuple(sorted(declared.super_users or ())),
        allow_everyone_if_no_acl=declared.allow_everyone_if_no_acl or False,
        disguise=disguise,
    )
