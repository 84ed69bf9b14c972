"""A client's side of SCRAM-SHA-512, from RFC 5802."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from functools import cache

HASH = "sha512"
_GS2 = b"n,,"


@cache
def salted(password: str, salt: bytes, iterations: int) -> bytes:
    """Cached: it is slow on purpose."""
    return hashlib.pbkdf2_hmac(HASH, password.encode(), salt, iterations)


def stored_key(password: str, salt: bytes, iterations: int) -> bytes:
    """Return the key that a server stores for this password."""
    client_key = hmac.digest(salted(password, salt, iterations), b"Client Key", HASH)
    return hashlib.new(HASH, client_key).digest()


class ScramClient:
    """`first`, then `last` of what the server said."""

    def __init__(self, user: str, password: str) -> None:
        self._password = password
        self._bare = f"n={user},r={base64.b64encode(os.urandom(12)).decode()}".encode()

    def first(self) -> bytes:
        return _GS2 + self._bare

    def last(self, challenge: bytes) -> bytes:
        said = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salt, iterations = base64.b64decode(said["s"]), int(said["i"])
        client_key = hmac.digest(salted(self._password, salt, iterations), b"Client Key", HASH)
        without = f"c={base64.b64encode(_GS2).decode()},r={said['r']}".encode()
        signed = b",".join((self._bare, challenge, without))
        key = stored_key(self._password, salt, iterations)
        signature = hmac.digest(key, signed, HASH)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return without + b",p=" + base64.b64encode(proof)
