"""The fields of `LogCluster` about the issuers of tokens with which clients log in."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from plimsoll_operator.api.meta import Api, ObjectName, described

SERVICE_ACCOUNTS = "kubernetes"
"""Name of the issuer of ServiceAccount tokens of the Kubernetes cluster itself."""
KEY_DEFAULT = "jwks.json"


class KeysConfigMap(Api, frozen=True, kw_only=True):
    """A ConfigMap of this namespace that holds an issuer's public keys."""

    name: ObjectName
    key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=253)] | None,
        described(f"Default {KEY_DEFAULT}."),
    ] = None


class DeclaredIssuer(Api, frozen=True, kw_only=True):
    """An issuer of tokens that listeners with OAuth accept."""

    name: Annotated[str, Meta(min_length=1, max_length=31, pattern=r"^[a-z][a-z0-9-]{0,30}$")]
    issuer: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=512,
            description="The required value of the token's iss claim.",
        ),
    ]
    audience: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=512,
            description="A value that the token's aud claim must be or contain.",
        ),
    ]
    keys_config_map: Annotated[
        KeysConfigMap,
        described(
            "The issuer's JSON Web Key Set (RFC 7517): keys for RS256, RS384, RS512, ES256 and "
            "ES384, each with a kid. Reread each minute."
        ),
    ]
    principal_claim: Annotated[
        Annotated[str, Meta(min_length=1, max_length=64)] | None,
        described("The claim that holds the user's name; default sub."),
    ] = None
    principal_prefix: Annotated[
        Annotated[str, Meta(max_length=64, pattern=r"^[A-Za-z0-9._:@-]*$")] | None,
        described(
            "Precedes the claim's value in the user name; default <name>: with the colon. "
            "If empty, the issuer can name any user, including users of other issuers."
        ),
    ] = None


TokenIssuers = Annotated[
    tuple[DeclaredIssuer, ...],
    Meta(
        max_length=8,
        description="Issuers of tokens that listeners with OAuth accept.",
        extra_json_schema={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    ),
]

TOKEN_ISSUERS_RULES = (
    (
        f"!has(self.tokenIssuers) || !self.tokenIssuers.exists(i, i.name == '{SERVICE_ACCOUNTS}')",
        f"An issuer must not be named {SERVICE_ACCOUNTS}: that is the issuer of ServiceAccount "
        "tokens.",
    ),
)
