"""An issuer of tokens, for tests: its keys, its tokens, and tokens that others made up."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from plimsoll_core.security.tokens import TokenIssuer, TokenKey, TokenLogin

KEY_ID = "key-1"
AUDIENCE = "plimsoll:default/main"
KUBERNETES = "https://kubernetes.default.svc.cluster.local"


class AnIssuer:
    """`token` makes what it would sign; `committed`: as brokers know it."""

    def __init__(
        self,
        issuer: str = KUBERNETES,
        audience: str = AUDIENCE,
        *,
        rsa: bool = False,
        key_id: str = KEY_ID,
    ) -> None:
        self.issuer, self.audience, self.key_id = issuer, audience, key_id
        # By which its tokens begin and end.
        self.clock: Callable[[], float] = time.time
        self.algorithm = "RS256" if rsa else "ES256"
        self.key: Any = generate_rsa(65537, 2048) if rsa else generate_private_key(SECP256R1())

    @property
    def public_key(self) -> bytes:
        """DER."""
        spki = PublicFormat.SubjectPublicKeyInfo
        return bytes(self.key.public_key().public_bytes(Encoding.DER, spki))

    def key_set(self) -> dict[str, Any]:
        """As it publishes it."""
        kind = RSAAlgorithm if self.algorithm == "RS256" else ECAlgorithm
        row = kind.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [{**row, "kid": self.key_id, "alg": self.algorithm, "use": "sig"}]}

    def committed(self, login: TokenLogin = "ServiceAccount", **more: Any) -> TokenIssuer:
        key = TokenKey(
            key_id=self.key_id,
            algorithm=self.algorithm,  # type: ignore[arg-type]
            public_key=self.public_key,
        )
        plain: dict[str, Any] = {"name": login.lower(), "login": login, "keys": (key,)}
        plain |= {"issuer": self.issuer, "audiences": (self.audience,)}
        return TokenIssuer(**{**plain, **more})

    def claims(self, subject: str, **more: Any) -> dict[str, Any]:
        """None leaves a claim out."""
        now_s = int(self.clock())
        plain = {"iss": self.issuer, "aud": [self.audience], "sub": subject}
        found = {**plain, "iat": now_s, "nbf": now_s, "exp": now_s + 600, **more}
        return {name: value for name, value in found.items() if value is not None}

    def token(self, subject: str, **more: Any) -> str:
        return self.signed(self.claims(subject, **more))

    def account_token(self, namespace: str = "shop", name: str = "orders", **more: Any) -> str:
        """A ServiceAccount's."""
        account = {"namespace": namespace, "serviceaccount": {"name": name, "uid": "u"}}
        subject = f"system:serviceaccount:{namespace}:{name}"
        return self.token(subject, **{"kubernetes.io": account, **more})

    def signed(self, claims: dict[str, Any], headers: dict[str, Any] | None = None) -> str:
        named = {"kid": self.key_id} if headers is None else headers
        return str(jwt.encode(claims, self.key, self.algorithm, named))


def raw(part: object) -> str:
    """A part of a token: JSON of a value, or bytes as they are."""
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def bearer(token: str, user: str = "", extensions: str = "") -> bytes:
    """A client's first message."""
    authzid = f"a={user}" if user else ""
    return f"n,{authzid},\x01auth=Bearer {token}\x01{extensions}\x01".encode()
