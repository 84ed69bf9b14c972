"""A client's side of SCRAM, written from RFC 5802 for tests."""

from __future__ import annotations

import base64
import hashlib
import hmac

from plimsoll_core.security.scram import ScramCredential, ScramMechanism, keys_of, salted_password


def a_credential(
    user: str = "alice",
    password: str = "secret",
    mechanism: ScramMechanism = "SCRAM-SHA-512",
    salt: bytes = b"0123456789abcdef",
) -> ScramCredential:
    stored_key, server_key = keys_of(mechanism, salted_password(mechanism, password, salt, 4096))
    return ScramCredential(
        user=user,
        mechanism=mechanism,
        salt=salt,
        iterations=4096,
        stored_key=stored_key,
        server_key=server_key,
    )


class ScramClient:
    """`first`, then `last` of what the server said, then `check` of what it said at the end."""

    def __init__(self, user: str, password: str, mechanism: ScramMechanism, gs2: str = "n,,"):
        self.user, self.password, self.gs2 = user, password, gs2
        self.hash = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self.bare = f"n={user},r=rOprNGfwEbeRWgbNEkqO".encode()

    def first(self) -> bytes:
        return self.gs2.encode() + self.bare

    def last(self, challenge: bytes) -> bytes:
        said = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salt, iterations = base64.b64decode(said["s"]), int(said["i"])
        salted = hashlib.pbkdf2_hmac(self.hash, self.password.encode(), salt, iterations)
        self.client_key = hmac.digest(salted, b"Client Key", self.hash)
        without_proof = f"c={base64.b64encode(self.gs2.encode()).decode()},r={said['r']}".encode()
        self.signed = b",".join((self.bare, challenge, without_proof))
        self.server_key = hmac.digest(salted, b"Server Key", self.hash)
        return self.proven(without_proof, self.signed)

    def proven(self, message: bytes, signed: bytes) -> bytes:
        """The message with the proof of what was signed."""
        stored_key = hashlib.new(self.hash, self.client_key).digest()
        signature = hmac.digest(stored_key, signed, self.hash)
        proof = bytes(a ^ b for a, b in zip(self.client_key, signature, strict=True))
        self.signed = signed
        return message.partition(b",p=")[0] + b",p=" + base64.b64encode(proof)

    def check(self, final: bytes) -> bool:
        expected = hmac.digest(self.server_key, self.signed, self.hash)
        return final == b"v=" + base64.b64encode(expected)
