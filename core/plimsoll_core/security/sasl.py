"""The login of one connection: which request may come when, and the answer to each.

Pure: the caller passes nonces, times and the committed credentials. A connection of a listener with
authentication begins in Start. Until it is Authenticated only ApiVersions, SaslHandshake and
SaslAuthenticate are answered. Source: KIP-43, KIP-152, KIP-368; `SaslServerAuthenticator` of Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from plimsoll_core.errors import Code
from plimsoll_core.security import scram
from plimsoll_core.security.client_certificates import (
    BY_CERTIFICATE,
    CertificateMechanism,
    CertificateProof,
)
from plimsoll_core.security.scram import SPEC_NAMES, ScramCredential, ScramMechanism
from plimsoll_core.security.tokens import (
    INVALID_TOKEN,
    OAUTHBEARER,
    TOKEN_LOGINS,
    Bearer,
    TokenIssuer,
    TokenKey,
    TokenMechanism,
    TokenProof,
    TokenRefusal,
    bearer_of,
)

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
BEFORE_LOGIN = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
"""The keys of the requests that are answered before a login."""
REQUESTS_MAX = 8
"""The most requests of a connection before its login is complete."""
EXPIRED_GRACE_MS = 60_000
"""The time in ms after which a connection with an expired session is closed if it sends no request.
Its next request closes it at once."""
FAILED = "The login failed: the user, the password, the token or the mechanism is wrong."
"""The message of every failed login. It is the same for every cause, so that it reveals nothing."""

Mechanism = ScramMechanism | TokenMechanism


def mechanisms_of(authentication: tuple[str, ...]) -> tuple[Mechanism, ...]:
    """Return Kafka's names of the SASL mechanisms that a listener with this authentication
    offers."""
    found: list[Mechanism] = [one for one in scram.MECHANISMS if SPEC_NAMES[one] in authentication]
    if set(TOKEN_LOGINS) & set(authentication):
        found.append(OAUTHBEARER)
    return tuple(found)


class LoginStage(Enum):
    """The progress of a connection's login. Verifying: the broker verifies a token's signature.
    TokenRefused: the client has been told that its token is refused, and must still answer, as RFC
    7628 requires."""

    START = "Start"
    HANDSHAKE = "Handshake"
    EXCHANGE = "Exchange"
    VERIFYING = "Verifying"
    TOKEN_REFUSED = "TokenRefused"
    AUTHENTICATED = "Authenticated"
    CLOSED = "Closed"


class Identity(NamedTuple):
    """The user as which a connection has logged in, and the proof: the key of a password, the
    issuer and key of a token, or a certificate. The login is valid while the proof is committed,
    and until `until_ms`; None for no end."""

    user: str
    mechanism: Mechanism | CertificateMechanism
    stored_key: bytes = b""
    issuer: TokenIssuer | None = None
    key: TokenKey | None = None
    until_ms: int | None = None
    certificate: CertificateProof | None = None

    @property
    def principal(self) -> str:
        return f"User:{self.user}"


def by_certificate(proof: CertificateProof) -> Identity:
    """Return the identity of a connection with a client certificate, after its TLS handshake."""
    return Identity(proof.user, BY_CERTIFICATE, until_ms=proof.until_ms, certificate=proof)


class LoginAnswer(NamedTuple):
    """The answer to SaslHandshake or SaslAuthenticate, with what the caller has to do next.

    `closes`: the reason to close the connection after the answer, empty to keep it. `logged_in`:
    set if the login succeeded, for `lifetime_ms` (0: no end). `token`: if set, do not answer yet
    but verify the token and call `judged`.
    """

    code: int = Code.NONE
    message: str | None = None
    payload: bytes = b""
    mechanisms: tuple[str, ...] = ()
    closes: str = ""
    logged_in: Identity | None = None
    lifetime_ms: int = 0
    token: Bearer | None = None
    refused: TokenRefusal | None = None


Find = Callable[[str, ScramMechanism], ScramCredential | None]


@dataclass(slots=True)
class SaslSession:
    """The SASL login of one connection, step by step. `mechanisms`: those of its listener;
    `session_max_ms`: for how long a login is valid, None for as long as its proof."""

    mechanisms: tuple[Mechanism, ...]
    session_max_ms: int | None = None
    stage: LoginStage = LoginStage.START

    identity: Identity | None = None
    """The identity of the last login; None before the first. A later one must be of the same user
    by the same mechanism."""

    expired: bool = False
    """True if the login has expired: only requests of a new login are answered."""

    claimed: str = ""
    """The user that the client has named in its last login, proven or not."""

    _mechanism: Mechanism | None = None
    _challenge: scram.Challenge | None = None
    _asked: int = 0

    def refuses(self, api_key: int) -> str:
        """Count the request if the login is unfinished. Return the reason why a request with this
        API key must close the connection, empty if the request may be answered."""
        if self.stage is LoginStage.AUTHENTICATED:
            over = self.expired and api_key not in BEFORE_LOGIN
            return "session-expired" if over else ""
        if self.stage is LoginStage.CLOSED:
            return "login-failed"
        self._asked += 1
        if api_key not in BEFORE_LOGIN or self._asked > REQUESTS_MAX:
            # A login that is done again is not interrupted by anything else, as in Kafka.
            return "not-logged-in"
        return ""

    def handshake(self, version: int, mechanism: str) -> LoginAnswer:
        """Answer SaslHandshake, in which the client names its mechanism; a login then begins anew.
        The answer closes the connection for version 0, during another login, for a mechanism that
        the listener does not offer, and for another one than that of the connection's earlier
        login."""
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
        """Answer SaslAuthenticate. `sent`: the client's first or second message of the exchange;
        `find`: returns a user's credential; `nonce`: a random text; `disguise`: a secret key, from
        which an unknown user's salt is derived (`scram.begin`); `now_ms`: the wall clock."""
        if self.stage is LoginStage.TOKEN_REFUSED:
            return self._failed()
        if self._mechanism == OAUTHBEARER:
            return self._take_token(sent)
        try:
            if self.stage is LoginStage.HANDSHAKE and self._mechanism is not None:
                by_name = _by_name(find, self._mechanism)
                self._challenge = scram.begin(self._mechanism, sent, by_name, nonce, disguise)
                self.stage, self.claimed = LoginStage.EXCHANGE, self._challenge.user
                return LoginAnswer(payload=self._challenge.server_first)
            if self.stage is LoginStage.EXCHANGE and self._challenge is not None:
                # The password may have changed since the first message.
                found = find(self._challenge.user, self._challenge.mechanism)
                same = found == self._challenge.credential
                proven = scram.end(self._challenge, sent, now_ms)
                return self._proven(proven, now_ms) if same else self._failed()
        except scram.ScramError:
            return self._failed()
        return self._close(Code.ILLEGAL_SASL_STATE)

    def _proven(self, proven: scram.Proven, now_ms: int) -> LoginAnswer:
        assert self._challenge is not None, "it was answered"
        until_ms = None if self.session_max_ms is None else now_ms + self.session_max_ms
        identity = Identity(
            proven.user, self._challenge.mechanism, proven.stored_key, until_ms=until_ms
        )
        return self._logged_in(identity, proven.server_final, now_ms)

    def _logged_in(self, identity: Identity, payload: bytes, now_ms: int) -> LoginAnswer:
        if self.identity is not None and self.identity.user != identity.user:
            return self._failed()
        self.stage, self.identity = LoginStage.AUTHENTICATED, identity
        self._challenge, self.expired = None, False
        lifetime_ms = 0 if identity.until_ms is None else max(1, identity.until_ms - now_ms)
        return LoginAnswer(payload=payload, logged_in=identity, lifetime_ms=lifetime_ms)

    def _take_token(self, sent: bytes) -> LoginAnswer:
        if self.stage is not LoginStage.HANDSHAKE:
            # Also while one is looked at: a connection has one at a time.
            return self._close(Code.ILLEGAL_SASL_STATE)
        found = bearer_of(sent)
        if isinstance(found, TokenRefusal):
            return self._refuse(found)
        self.stage, self.claimed = LoginStage.VERIFYING, found.user
        return LoginAnswer(token=found)

    def judged(self, found: TokenProof | TokenRefusal, now_ms: int) -> LoginAnswer:
        """Complete the login by a token with the result of its verification, and return the answer.
        A proven login is valid until the token's end, or `session_max_ms` after `now_ms` (wall
        clock) if that is earlier."""
        if self.stage is not LoginStage.VERIFYING:
            return self._close(Code.ILLEGAL_SASL_STATE)
        if isinstance(found, TokenRefusal):
            return self._refuse(found)
        until_ms = found.until_ms
        if self.session_max_ms is not None:
            until_ms = min(until_ms, now_ms + self.session_max_ms)
        identity = Identity(
            found.user, OAUTHBEARER, issuer=found.issuer, key=found.key, until_ms=until_ms
        )
        return self._logged_in(identity, b"", now_ms)

    def _refuse(self, why: TokenRefusal) -> LoginAnswer:
        self.stage = LoginStage.TOKEN_REFUSED
        return LoginAnswer(payload=INVALID_TOKEN, refused=why)

    def _failed(self) -> LoginAnswer:
        return self._close(Code.SASL_AUTHENTICATION_FAILED, FAILED)

    def _close(self, code: Code, message: str | None = None) -> LoginAnswer:
        self.stage = LoginStage.CLOSED
        return LoginAnswer(code, message, mechanisms=self.mechanisms, closes="login-failed")


def _by_name(find: Find, mechanism: ScramMechanism) -> Callable[[str], ScramCredential | None]:
    return lambda user: find(user, mechanism)
