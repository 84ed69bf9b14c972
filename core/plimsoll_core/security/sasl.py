"""One connection's way to an identity: which request may come when, and what each is told.

Pure: the caller hands in nonces, times and what is committed.  A connection of a listener that asks
for a login begins in Start.  Until it is Authenticated nothing but ApiVersions, SaslHandshake and
SaslAuthenticate is answered.  Source: KIP-43, KIP-152, KIP-368; `SaslServerAuthenticator` of Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from plimsoll_core.errors import Code
from plimsoll_core.security import scram
from plimsoll_core.security.scram import ScramCredential, ScramMechanism

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
BEFORE_LOGIN = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
"""The keys of the requests that are answered before a login."""
REQUESTS_MAX = 8
"""So many may come before a login."""
FAILED = "The login failed: the user, the password or the mechanism is not right."
"""Whatever was wrong."""


class LoginStage(Enum):
    START = "Start"
    HANDSHAKE = "Handshake"
    EXCHANGE = "Exchange"
    AUTHENTICATED = "Authenticated"
    CLOSED = "Closed"


class Identity(NamedTuple):
    """Who is at the other end, and by what it was shown.  `stored_key`: the key that the proof
    fitted; it is logged in for as long as that is committed."""

    user: str
    mechanism: ScramMechanism
    stored_key: bytes

    @property
    def principal(self) -> str:
        return f"User:{self.user}"


class LoginAnswer(NamedTuple):
    """What the client is told; `closes`: why the connection is closed once it is told, and
    `logged_in`: from now on."""

    code: int = Code.NONE
    message: str | None = None
    payload: bytes = b""
    mechanisms: tuple[str, ...] = ()
    closes: str = ""
    logged_in: Identity | None = None


Find = Callable[[str, ScramMechanism], ScramCredential | None]


@dataclass(slots=True)
class SaslSession:
    """Of one connection.  `mechanisms`: what its listener offers."""

    mechanisms: tuple[ScramMechanism, ...]
    stage: LoginStage = LoginStage.START

    identity: Identity | None = None
    """Since its first login; another login must be the same user's by the same mechanism."""

    _mechanism: ScramMechanism | None = None
    _challenge: scram.Challenge | None = None
    _asked: int = 0

    def refuses(self, api_key: int) -> str:
        """Why a request closes the connection; empty: it is answered."""
        if self.stage is LoginStage.AUTHENTICATED:
            return ""
        if self.stage is LoginStage.CLOSED:
            return "login-failed"
        self._asked += 1
        if api_key not in BEFORE_LOGIN or self._asked > REQUESTS_MAX:
            # A login that is done again is not interrupted by anything else, as in Kafka.
            return "not-logged-in"
        return ""

    def handshake(self, version: int, mechanism: str) -> LoginAnswer:
        """SaslHandshake."""
        if version == 0 or self.stage not in (LoginStage.START, LoginStage.AUTHENTICATED):
            # After a handshake of version 0 tokens would come without a header.
            return self._close(Code.ILLEGAL_SASL_STATE)
        again = self.identity is not None and mechanism != self.identity.mechanism
        known = next((one for one in self.mechanisms if one == mechanism), None)
        if known is None or again:
            return self._close(Code.UNSUPPORTED_SASL_MECHANISM)
        self._asked = 0
        self.stage, self._mechanism = LoginStage.HANDSHAKE, known
        return LoginAnswer(mechanisms=self.mechanisms)

    def authenticate(
        self, sent: bytes, find: Find, nonce: str, disguise: bytes, now_ms: int
    ) -> LoginAnswer:
        """SaslAuthenticate, the first or the second of an exchange."""
        mechanism = self._mechanism
        try:
            if self.stage is LoginStage.HANDSHAKE and mechanism is not None:
                by_name = _by_name(find, mechanism)
                self._challenge = scram.begin(mechanism, sent, by_name, nonce, disguise)
                self.stage = LoginStage.EXCHANGE
                return LoginAnswer(payload=self._challenge.server_first)
            if self.stage is LoginStage.EXCHANGE and self._challenge is not None:
                # What was committed meanwhile counts.
                found = find(self._challenge.user, self._challenge.mechanism)
                same = found == self._challenge.credential
                proven = scram.end(self._challenge, sent, now_ms)
                return self._logged_in(proven) if same else self._failed()
        except scram.ScramError:
            return self._failed()
        return self._close(Code.ILLEGAL_SASL_STATE)

    def _logged_in(self, proven: scram.Proven) -> LoginAnswer:
        assert self._mechanism is not None, "an exchange has a mechanism"
        if self.identity is not None and self.identity.user != proven.user:
            return self._failed()
        identity = Identity(proven.user, self._mechanism, proven.stored_key)
        self.stage, self.identity = LoginStage.AUTHENTICATED, identity
        self._challenge = None
        return LoginAnswer(payload=proven.server_final, logged_in=identity)

    def _failed(self) -> LoginAnswer:
        return self._close(Code.SASL_AUTHENTICATION_FAILED, FAILED)

    def _close(self, code: Code, message: str | None = None) -> LoginAnswer:
        self.stage = LoginStage.CLOSED
        return LoginAnswer(code, message, mechanisms=self.mechanisms, closes="login-failed")


def _by_name(find: Find, mechanism: ScramMechanism) -> Callable[[str], ScramCredential | None]:
    return lambda user: find(user, mechanism)
