"""ServiceAccount tokens of an API server in memory: TokenRequest, and the keys that verify tokens.

It issues tokens as `kubectl create token` requests them and as the kubelet projects them. The key
is created at each start and stored nowhere. Source: `pkg/serviceaccount/claims.go` of Kubernetes.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm

from plimsoll_operator.api_server.status_errors import bad_request
from plimsoll_operator.api_server.stored_object import timestamp
from plimsoll_operator.kube.kube_api import OPENID_CONFIGURATION, OPENID_KEYS, Object

ISSUER = "https://kubernetes.default.svc.cluster.local"
SECONDS_DEFAULT, SECONDS_MIN, SECONDS_MAX = 3600, 600, 2**32
ALGORITHM = "ES256"


class AccountTokens:
    """Issues ServiceAccount tokens, signed with a key that it creates itself. `documents`: the
    OpenID documents that publish the issuer and its public key, by URL path."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._key = generate_private_key(SECP256R1())
        public = self._key.public_key()
        der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self._key_id = hashlib.sha256(der).hexdigest()[:43]
        row: dict[str, Any] = ECAlgorithm.to_jwk(public, as_dict=True)
        row |= {"kid": self._key_id, "alg": ALGORITHM, "use": "sig"}
        self.documents: dict[str, Object] = {
            OPENID_CONFIGURATION: {"issuer": ISSUER, "jwks_uri": OPENID_KEYS},
            OPENID_KEYS: {"keys": [row]},
        }

    def issue(self, account: Object, request: Object) -> Object:
        """Answer the TokenRequest `request` for the ServiceAccount `account`: return it with a
        signed token in its status. Raises StatusError if the requested lifetime is out of
        bounds."""
        spec = request.get("spec") or {}
        seconds = spec.get("expirationSeconds") or SECONDS_DEFAULT
        if not isinstance(seconds, int) or not SECONDS_MIN <= seconds <= SECONDS_MAX:
            raise bad_request(f"spec.expirationSeconds: from {SECONDS_MIN} to {SECONDS_MAX}")
        metadata, now_s = account["metadata"], self._now_ms() // 1000
        namespace, name = metadata["namespace"], metadata["name"]
        until_s = now_s + seconds
        claims = {
            "aud": list(spec.get("audiences") or (ISSUER,)),
            "exp": until_s,
            "iat": now_s,
            "iss": ISSUER,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": name, "uid": metadata["uid"]},
            },
            "nbf": now_s,
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        token = jwt.encode(claims, self._key, ALGORITHM, {"kid": self._key_id})
        status = {"token": token, "expirationTimestamp": timestamp(until_s * 1000)}
        head = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}
        named = {"name": name, "namespace": namespace}
        return {**head, "metadata": named, "spec": {**spec, "expirationSeconds": seconds}} | {
            "status": status
        }
