"""The part of `LogCluster` about issuers of tokens by which clients log in."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from plimsoll_operator.api.meta import Api, ObjectName

SERVICE_ACCOUNTS = "kubernetes"
"""The name of the cluster's own issuer of ServiceAccount tokens."""
KEY_DEFAULT = "jwks.json"


class KeysConfigMap(Api, frozen=True, kw_only=True):
    """A ConfigMap of this namespace that holds an issuer's public keys."""

    name: ObjectName
    key: (
        Annotated[str, Meta(min_length=1, max_length=253, description=f"Unset: {KEY_DEFAULT}.")]
        | None
    ) = None


class DeclaredIssuer(Api, frozen=True, kw_only=True):
    """Whose tokens are believed by listeners with OAuth."""

    name: Annotated[str, Meta(min_length=1, max_length=31, pattern=r"^[a-z][a-z0-9-]{0,30}$")]
    issuer: Annotated[
        str, Meta(min_length=1, max_length=512, description="What tokens have as iss.")
    ]
    audience: Annotated[
        str, Meta(min_length=1, max_length=512, description="What tokens have as, or among, aud.")
    ]
    keys_config_map: Annotated[
        KeysConfigMap,
        Meta(
            description=(
                "Where the issuer's JSON Web Key Set is (RFC 7517): keys for RS256, RS384, RS512, "
                "ES256 and ES384, each with its kid. It is read again each minute."
            )
        ),
    ]
    principal_claim: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=64,
                description="Which claim names the user; default sub.",
            ),
        ]
        | None
    ) = None
    principal_prefix: (
        Annotated[
            str,
            Meta(
                max_length=64,
                pattern=r"^[A-Za-z0-9._:@-]*$",
                description=(
                    "Stands before the claim in the user's name; default is <name>: and empty "
                    "lets the issuer's users have the names of any others."
                ),
            ),
        ]
        | None
    ) = None


TokenIssuers = Annotated[
    tuple[DeclaredIssuer, ...],
    Meta(
        max_length=8,
        description="Whose tokens are believed by listeners with OAuth.",
        extra_json_schema={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    ),
]

TOKEN_ISSUERS_RULES = (
    (
        f"!has(self.tokenIssuers) || !self.tokenIssuers.exists(i, i.name == '{SERVICE_ACCOUNTS}')",
        f"An issuer cannot be called {SERVICE_ACCOUNTS}: that is the one of ServiceAccounts.",
    ),
)
