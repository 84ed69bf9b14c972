"""SCRAM-SHA-256 and SCRAM-SHA-512: the stored form of a password, and the server's side of a login.

Pure: nonces and times are arguments. The stored keys (StoredKey and ServerKey of RFC 5802) do not
allow their reader to log in. A user that does not exist gets the same answer as a wrong password.
Source: RFC 5802, RFC 7677, KIP-84, KIP-554; `ScramSaslServer` of Kafka.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

ScramMechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS: tuple[ScramMechanism, ...] = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISM_NUMBERS: dict[ScramMechanism, int] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
SPEC_NAMES: dict[ScramMechanism, str] = {
    "SCRAM-SHA-256": "ScramSha256",
    "SCRAM-SHA-512": "ScramSha512",
}
"""The names of the mechanisms in objects and committed listeners."""
_HASH = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
NONCE_BYTES = 24
SALT_BYTES_MAX = 128
MESSAGE_BYTES_MAX = 4096
"""The most bytes of one message of an exchange."""
USER_NAME = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
"""The form of user names that librdkafka and kafka-python send unchanged. A user with a comma or an
equals sign in its name could never log in with these clients."""


class PreviousKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of a user's former password, valid until `until_ms` by the brokers' wall clocks."""

    stored_key: bytes
    server_key: bytes
    until_ms: int

    def __repr__(self) -> str:
        return "PreviousKeys(***)"


class ScramCredential(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stored form of one user's password for one mechanism. `owner`: the uid of the User object
    that declares it; empty if a client created it."""

    user: str
    mechanism: ScramMechanism
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes
    owner: str = ""
    previous: PreviousKeys | None = None

    @property
    def stored_keys(self) -> tuple[bytes, ...]:
        """Return the stored key of the password, and that of the former password if it is still
        committed, expired or not."""
        previous = self.previous
        return (self.stored_key,) if previous is None else (self.stored_key, previous.stored_key)

    def __repr__(self) -> str:
        return f"ScramCredential({self.user}, {self.mechanism}, ***)"

    @property
    def order(self) -> tuple[str, str]:
        return self.user, self.mechanism


def illegal_user_name(name: str) -> bool:
    """Return True if the user name is malformed, or reserved for Kubernetes ServiceAccounts."""
    return USER_NAME.fullmatch(name) is None or name.startswith("system:") or name == "ANONYMOUS"


def salt_of(random: bytes) -> bytes:
    """Return a salt as Kafka's own tools make it: 130 random bits in base 36 (`secureRandomBytes`
    of ScramFormatter), so that users of objects, users of these tools and unknown users look alike.
    `random`: 32 bytes."""
    number = int.from_bytes(random, "big") % (1 << 130)
    digits = b""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = b"0123456789abcdefghijklmnopqrstuvwxyz"[digit : digit + 1] + digits
    return digits


def login_mark(stored_key: bytes) -> bytes:
    """Return a mark that identifies a login by this stored key. It cannot be used to log in."""
    return hashlib.sha256(stored_key).digest()[:16]


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Return the salted password of RFC 5802. It takes milliseconds, so no broker computes it for a
    login."""
    return hashlib.pbkdf2_hmac(_HASH[mechanism], password.encode(), salt, iterations)


def keys_of(mechanism: ScramMechanism, salted: bytes) -> tuple[bytes, bytes]:
    """Return the StoredKey and the ServerKey of a salted password (RFC 5802)."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    return _digest(mechanism, client_key), _hmac(mechanism, salted, b"Server Key")


def key_bytes(mechanism: ScramMechanism) -> int:
    """Return the length in bytes of the mechanism's keys and salted passwords."""
    return hashlib.new(_HASH[mechanism]).digest_size


class Challenge(NamedTuple):
    """The state of an exchange after the server's first message. `end` completes it with the
    client's second message. `credential`: None if there is no such user."""

    user: str
    mechanism: ScramMechanism
    nonce: str
    gs2_header: bytes
    client_first_bare: bytes
    server_first: bytes
    credential: ScramCredential | None


class Proven(NamedTuple):
    """The proof that the client knows the password. `stored_key`: the present or the former key,
    whichever the proof matches. `server_final`: the server's last message."""

    user: str
    stored_key: bytes
    server_final: bytes


class ScramError(Exception):
    """Raised if the login failed. The message is for the log only; the client is not told the
    reason."""


_FIRST = re.compile(rb"(n|y|p=[A-Za-z0-9.-]+),(?:a=([^,]*))?,(.*)", re.DOTALL)
_FIRST_BARE = re.compile(rb"n=([^,]+),r=([\x21-\x2b\x2d-\x7e]{1,256})((?:,[a-zA-Z]=[^,]*)*)")
_LAST = re.compile(
    rb"(c=([A-Za-z0-9+/=]{1,512}),r=([\x21-\x2b\x2d-\x7e]{1,512})(?:,[a-zA-Z]=[^,]*)*?)"
    rb",p=([A-Za-z0-9+/=]{1,256})"
)


def begin(
    mechanism: ScramMechanism,
    client_first: bytes,
    find: Callable[[str], ScramCredential | None],
    server_nonce: str,
    disguise: bytes,
) -> Challenge:
    """Answer a client's first message. Raises ScramError if the message is malformed or asks for
    something that is not supported.

    `find`: returns a user's credential, or None. `server_nonce`: random. `disguise`: a secret key,
    from which the salt of an unknown user is derived, so that it is the same each time.
    """
    user, gs2_header, bare, client_nonce = _read_first(client_first)
    # Also for a known user: the time that it takes would tell them apart.
    salt = salt_of(hmac.digest(disguise, f"{mechanism} {user}".encode(), "sha256"))
    iterations = ITERATIONS_MIN
    if (credential := find(user)) is not None:
        salt, iterations = credential.salt, credential.iterations
    nonce = client_nonce + server_nonce
    text = f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}"
    return Challenge(user, mechanism, nonce, gs2_header, bare, text.encode(), credential)


def _read_first(message: bytes) -> tuple[str, bytes, bytes, str]:
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramError("the client's first SCRAM message is too long")
    found = _FIRST.fullmatch(message)
    if found is None or found[1] not in (b"n", b"y"):
        raise ScramError(
            "the client's first SCRAM message is malformed, or asks for channel binding, which "
            "is not supported"
        )
    bare = _FIRST_BARE.fullmatch(found[3])
    if bare is None:
        raise ScramError("the client's first SCRAM message is malformed")
    if b"tokenauth=true" in bare[3]:
        raise ScramError("the client logs in with a delegation token, which is not supported")
    user = _name(bare[1])
    if found[2] is not None and _name(found[2]) not in ("", user):
        raise ScramError("the client asks to act as another user, which is not supported")
    gs2_header = message[: len(message) - len(found[3])]
    return user, gs2_header, found[3], bare[2].decode()


def _name(sent: bytes) -> str:
    """Decode a user name in which =2C and =3D stand for comma and equals sign (RFC 5802)."""
    try:
        text = sent.decode()
    except UnicodeDecodeError as error:
        raise ScramError(
            "the user name in the client's first SCRAM message is not valid UTF-8"
        ) from error
    rest = text.replace("=2C", "").replace("=3D", "")
    if "=" in rest:
        raise ScramError(
            "the user name in the client's first SCRAM message has an equals sign that is not "
            "escaped as =3D"
        )
    return text.replace("=2C", ",").replace("=3D", "=")


def end(challenge: Challenge, client_final: bytes, now_ms: int) -> Proven:
    """Check the client's second message against the keys of the present password, then of the
    former one if it is valid at `now_ms` (wall clock). Raises ScramError if neither matches, the
    message is malformed, or the user does not exist."""
    found = None
    if len(client_final) <= MESSAGE_BYTES_MAX:
        found = _LAST.fullmatch(client_final)
    if found is None:
        raise ScramError("the client's second SCRAM message is malformed")
    binding, proof = _base64(found[2]), _base64(found[4])
    # As Kafka: librdkafka before 2.8 puts its own nonce before the whole of it once more.
    if not found[3].decode().endswith(challenge.nonce):
        raise ScramError(
            "the client's second SCRAM message answers another challenge than the broker sent"
        )
    if binding != challenge.gs2_header:
        raise ScramError(
            "the client's second SCRAM message states another channel binding than its first "
            "message"
        )
    mechanism, credential = challenge.mechanism, challenge.credential
    signed = b",".join((challenge.client_first_bare, challenge.server_first, found[1]))
    for stored_key, server_key in _candidates(mechanism, credential, now_ms):
        if _fits(mechanism, stored_key, signed, proof) and credential is not None:
            signature = _hmac(mechanism, server_key, signed)
            return Proven(challenge.user, stored_key, b"v=" + base64.b64encode(signature))
    raise ScramError("the login failed: the user does not exist, or the password is wrong")


def _candidates(
    mechanism: ScramMechanism, credential: ScramCredential | None, now_ms: int
) -> tuple[tuple[bytes, bytes], ...]:
    if credential is None:
        nothing = bytes(key_bytes(mechanism))
        return ((nothing, nothing),)
    present = (credential.stored_key, credential.server_key)
    previous = credential.previous
    if previous is None or now_ms >= previous.until_ms:
        return (present,)
    return present, (previous.stored_key, previous.server_key)


def _fits(mechanism: ScramMechanism, stored_key: bytes, signed: bytes, proof: bytes) -> bool:
    signature = _hmac(mechanism, stored_key, signed)
    if len(proof) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    return hmac.compare_digest(_digest(mechanism, client_key), stored_key)


def _base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ScramError("the client's second SCRAM message is not valid base64") from error


def _hmac(mechanism: ScramMechanism, key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, _HASH[mechanism])


def _digest(mechanism: ScramMechanism, value: bytes) -> bytes:
    return hashlib.new(_HASH[mechanism], value).digest()
