"""The part of `LogCluster` about clients' rights: `spec.authorization`.

`committed` converts it for the metadata log.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_core.security.state import Authorization, Mode
from plimsoll_operator.api.meta import Api

PrincipalName = Annotated[str, Meta(min_length=3, max_length=256, pattern=r"^[A-Za-z]+:.+$")]


class DeclaredAuthorization(Api, frozen=True, kw_only=True):
    """Whether clients need rights: ACLs, made by User objects and by Kafka's tools."""

    mode: (
        Annotated[
            Literal["Off", "Audit", "Enforce"],
            Meta(
                description=(
                    "Off (default): everybody may do all. Audit: what Enforce would refuse is "
                    "logged, and done. Enforce: what no rule allows is refused."
                )
            ),
        ]
        | None
    ) = None
    super_users: (
        Annotated[
            tuple[PrincipalName, ...],
            Meta(
                max_length=32,
                description="Principals that may do all, such as User:admin.",
                extra_json_schema={"x-kubernetes-list-type": "set"},
            ),
        ]
        | None
    ) = None
    allow_everyone_if_no_acl: (
        Annotated[
            bool,
            Meta(
                description=(
                    "Whether everybody may do all with a resource that no rule of anybody names; "
                    "default false. Kafka's allow.everyone.if.no.acl.found."
                )
            ),
        ]
        | None
    ) = None


def committed(declared: DeclaredAuthorization | None, disguise: bytes) -> Authorization:
    """Convert the settings for the brokers. `disguise`: used if none is committed yet."""
    if declared is None:
        return Authorization(disguise=disguise)
    return Authorization(
        mode=Mode(declared.mode or "Off"),
        super_users=tuple(sorted(declared.super_users or ())),
        allow_everyone_if_no_acl=declared.allow_everyone_if_no_acl or False,
        disguise=disguise,
    )
