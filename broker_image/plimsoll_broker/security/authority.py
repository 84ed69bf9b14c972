"""Authority: decides which client may do what on this broker, by the committed users and rights.

A broker has one, and updates it with every cluster image in the turn of the event loop in which the
image is applied. Decisions for a connection are cached while the committed rules stay the same. A
connection that logged in with a key that is no longer committed is closed in that turn.

`Decisions`: the cached authorization decisions of one connection, one for each name, bounded, since
a client may name anything, of any length. Decisions about existing topics are cached, and a few
about other names.

`VisibleTopics`: the topics that one principal may describe, and its rewritten requests for all
topics. A request for all topics is answered as if it had named the visible ones
(`guards.metadata`). Encoding some hundred names takes longer than the rest of a cached reply, so
the rewritten requests are cached, too.

`SecurityStats`: a broker's counts of logins and rights, for metrics.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from uuid import UUID

from plimsoll_broker.security.audit_log import AuditEvent, AuditLog
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_broker.server.dispatch import Buffer
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.messages.security import OnBehalf
from plimsoll_core.security.acl import (
    CLUSTER_NAME,
    OPERATION_BITS,
    TOLD_BITS,
    AclOperation,
    ResourceType,
)
from plimsoll_core.security.acl_index import AclQuestion
from plimsoll_core.security.client_certificates import BY_CERTIFICATE, CertificateRefusal, mark_of
from plimsoll_core.security.sasl import EXPIRED_GRACE_MS, Identity
from plimsoll_core.security.scram import ScramCredential, ScramMechanism, login_mark
from plimsoll_core.security.state import Mode, SecurityState
from plimsoll_core.security.tokens import (
    OAUTHBEARER,
    TokenIssuer,
    TokenProof,
    TokenRefusal,
    token_mark,
)

TOPICS_MAX = 10_000
"""The most cached decisions about existing topics, for one connection."""
OTHERS_MAX = 200
"""The most cached decisions about other names, for one connection: those of a request that is
served on the event loop."""
NAME_MAX = 255
"""The most characters of a name, other than an existing topic's, in a cached decision."""


class Decisions(NamedTuple):
    """The cached authorization decisions of one connection: the operations that are allowed, as
    bits, by name. A name is decided once for all operations. `topics`: of existing topics.
    `security`: the rules by which the decisions were made. When the rules change the whole object
    is replaced, since threads read it for long requests while the event loop applies new rules."""

    security: SecurityState
    topics: dict[str, int]
    others: dict[tuple[ResourceType, str], int]

    def remember(self, kind: ResourceType, name: str, allowed: int, *, there_is: bool) -> None:
        """Cache a decision; first clear the cache of its kind if that is full. `there_is`: True if
        the decision is about an existing topic. A decision about another name of more than NAME_MAX
        characters is not cached."""
        if there_is:
            if len(self.topics) >= TOPICS_MAX:
                self.topics.clear()
            self.topics[name] = allowed
        elif len(name) <= NAME_MAX:
            if len(self.others) >= OTHERS_MAX:
                self.others.clear()
            self.others[kind, name] = allowed


PRINCIPALS_MAX = 64
"""The most principals with cached visible topics."""
ASKED_MAX = 2
"""The most requests for all topics that are cached for each principal: clients of one kind send the
same request."""
ASKED_BYTES_MAX = 64
"""The largest request for all topics that is cached, in bytes. Such a request names no topic."""
REWRITTEN_BYTES_MAX = 256 * 1024
"""The largest rewritten request that is cached, in bytes."""


class VisibleTopics:
    """The topics that one principal may describe, and its cached rewritten requests for all topics.
    `names`: the names of these topics; None if they are all topics. `security` and `topic_ids`: the
    rules and the topics that `names` was derived from."""

    __slots__ = ("_requests", "names", "security", "topic_ids")

    def __init__(
        self, topic_ids: object, security: SecurityState, names: tuple[str, ...] | None
    ) -> None:
        self.topic_ids = topic_ids
        self.security = security
        self.names = names
        # By API, version and original body. A value of None passes the request on unchanged.
        self._requests: dict[tuple[int, int, bytes], bytes | None] = {}

    def has_asked(self, key: int, version: int, body: Buffer) -> bool:
        """Return True if the rewritten form of this request is cached."""
        return len(body) <= ASKED_BYTES_MAX and (key, version, bytes(body)) in self._requests

    def request(
        self, key: int, version: int, body: Buffer, make: Callable[[], bytes | None]
    ) -> bytes | None:
        """Return the rewritten form of a request for all topics, from the cache or by calling
        `make`, or None if the request is passed on unchanged. The new form is cached if there is
        room."""
        if len(body) > ASKED_BYTES_MAX:
            return make()
        question = (key, version, bytes(body))
        if question in self._requests:
            return self._requests[question]
        made = make()
        if len(self._requests) < ASKED_MAX and len(made or b"") <= REWRITTEN_BYTES_MAX:
            self._requests[question] = made
        return made


class VisibleOfPrincipals:
    """The cached `VisibleTopics` of a broker's clients, by principal and host."""

    def __init__(self) -> None:
        # By principal and host.
        self._known: dict[tuple[str, str], VisibleTopics] = {}

    def get(
        self, principal: str, host: str, topic_ids: object, security: SecurityState
    ) -> VisibleTopics | None:
        """Return the cached topics of a principal at a host. Return None if none are cached, or if
        `topic_ids` or `security` are not the objects for which they were cached."""
        found = self._known.get((principal, host))
        if found is None or found.topic_ids is not topic_ids:
            return None
        return found if found.security is security else None

    def put(self, principal: str, host: str, visible: VisibleTopics) -> None:
        if len(self._known) >= PRINCIPALS_MAX:
            self._known.clear()
        self._known[principal, host] = visible


@dataclass(slots=True)
class SecurityStats:
    """Counts of authorization decisions and logins since the start; they never decrease."""

    denied: int = 0
    would_deny: int = 0
    logins: int = 0
    failed_logins: int = 0
    cut_off: int = 0
    tokens_refused: Counter[TokenRefusal] = field(default_factory=Counter)
    certificates_refused: Counter[CertificateRefusal] = field(default_factory=Counter)


SESSION_S_MAX = 10 * 365 * 24 * 3600.0
"""The longest time, in seconds, for which a timer is set. Certificates may be valid for thousands
of years, which a timer cannot take."""

_TOPIC = ResourceType.TOPIC
_BIT = OPERATION_BITS
_DESCRIBE = _BIT[AclOperation.DESCRIBE]


class Rights:
    """Answers what the client of one connection may do, by the committed rules. A denial is written
    to the audit log unless the method says otherwise. In Audit mode the client may do everything,
    and what Enforce would deny is written."""

    __slots__ = ("_authority", "_known", "_login", "host", "listener", "principal")

    def __init__(self, authority: Authority, connection: ConnectionState) -> None:
        self._authority = authority
        self._known = Decisions(authority.security, {}, {})
        self.principal = connection.principal
        self.host = connection.host
        self.listener = connection.listener_name
        # By its client's login: a request that outlives the login still belongs to that client.
        self._login = connection.login

    @property
    def behalf(self) -> OnBehalf:
        """The client's identity, for requests that are forwarded to the controller."""
        return OnBehalf(principal=self.principal, host=self.host, login=self._login)

    @property
    def security(self) -> SecurityState:
        """The rules by which the next decision is made: those of the last applied image."""
        return self._authority.security

    def topic(self, operation: AclOperation, name: str) -> bool:
        known = self._known
        if known[0] is self._authority.security and known[1].get(name, 0) & _BIT[operation]:
            return True  # the usual case: decided before
        return self._may(operation, _TOPIC, name)

    def group(self, operation: AclOperation, name: str) -> bool:
        return self._may(operation, ResourceType.GROUP, name)

    def transactional_id(self, operation: AclOperation, name: str) -> bool:
        return self._may(operation, ResourceType.TRANSACTIONAL_ID, name)

    def cluster(self, operation: AclOperation) -> bool:
        return self._may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def cluster_quietly(self, operation: AclOperation) -> bool:
        """Return True if the client has the right to `operation` on the cluster; False without it,
        even in Audit mode. Makes no audit entry, since another right may suffice."""
        return self._decide(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def reads_quietly(self, topic: str) -> bool:
        """Return True if the client may read the topic; always in Audit mode. Makes no audit entry,
        since a later check makes one."""
        return self._is_told(AclOperation.READ, _TOPIC, topic)

    def topic_name(self, topic_id: UUID | None) -> str | None:
        """Return the name of the topic with this id, or None if there is no such topic."""
        topic = self._authority.image.topics.get(topic_id)  # type: ignore[arg-type]
        return None if topic is None else topic.name

    def there_is(self, name: str) -> bool:
        """Return True if a topic with this name exists."""
        return name in self._authority.image.topic_ids

    def may_be_made(self, name: str) -> bool:
        """Return True if a request of this client may name the topic although that could create it:
        the topic exists, requests create no topics on this broker, or the client has the right to
        create it. A denial of that right is written to the audit log."""
        if self.there_is(name) or not self._authority.makes_topics:
            return True
        if self.cluster_quietly(AclOperation.CREATE):
            return True
        return self.topic(AclOperation.CREATE, name)

    def visible_topics(self) -> VisibleTopics:
        """Return the topics that the client may describe, from the cache or by checking each
        existing topic."""
        return self._authority.visible_topics(self)

    def has_asked(self, key: int, version: int, body: Buffer) -> bool:
        """Return True if the rewritten form of this request for all topics is cached."""
        visible = self._authority.remembered_topics(self)
        return visible is not None and visible.has_asked(key, version, body)

    def sees(self, kind: ResourceType, name: str) -> bool:
        """Return True if a list may show this resource to the client: it has Describe on the
        resource, or the mode is Audit. Makes no audit entry."""
        return self._is_told(AclOperation.DESCRIBE, kind, name)

    def sees_any(self, kind: ResourceType) -> bool:
        """Return True if `sees` may return True for any resource of this kind. If False, no
        resource of the kind needs a check."""
        authority = self._authority
        may_see_any = authority.security.may_see_any
        return authority.audits or may_see_any(self.principal, self.host, kind)

    def is_told_configs(self, name: str) -> bool:
        """Return True if a CreateTopics reply may show the topic's configs to the client. Makes no
        audit entry, since the client has not requested them."""
        return self._is_told(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)

    def operations(self, kind: ResourceType, name: str) -> int:
        """Return the operations that the client may do on the resource, as bits (KIP-430); all in
        Audit mode. Makes no audit entries."""
        told = TOLD_BITS[kind]
        return told if self._authority.audits else told & self._decided(kind, name)

    def on_the_cluster(self) -> int:
        """Return the operations that the client may do on the cluster, as bits; 0 if it may not
        describe the cluster. Makes no audit entries."""
        if not (self._authority.audits or self.cluster_quietly(AclOperation.DESCRIBE)):
            return 0
        return self.operations(ResourceType.CLUSTER, CLUSTER_NAME)

    def on_any_topic(self, operation: AclOperation) -> bool:
        security = self._authority.security
        if security.allows_on_any(self.principal, self.host, operation, _TOPIC):
            return True
        return self._refused(operation, _TOPIC, "any")

    def _is_told(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Return True if the client has this right, so that a reply may say so; always True in
        Audit mode. Makes no audit entry."""
        return self._authority.audits or self._decide(operation, kind, name)

    def _may(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        return self._decide(operation, kind, name) or self._refused(operation, kind, name)

    def _decide(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        return bool(self._decided(kind, name) & _BIT[operation])

    def _decided(self, kind: ResourceType, name: str) -> int:
        """Return the operations that the client may do on the resource in mode Enforce, as bits."""
        security, known = self._authority.security, self._known
        if known[0] is not security:
            known = self._known = Decisions(security, {}, {})
        allowed = known.topics.get(name) if kind is _TOPIC else None
        if allowed is None:
            allowed = known.others.get((kind, name))
        if allowed is None:
            asked = AclQuestion(self.principal, self.host, AclOperation.DESCRIBE, kind, name)
            allowed = security.operations(asked)
            # Whether a topic exists is not checked for a client that may not know it, since a
            # longer-cached decision is answered faster, which would reveal it.
            there_is = kind is _TOPIC and bool(allowed & _DESCRIBE) and self.there_is(name)
            known.remember(kind, name, allowed, there_is=there_is)
        return allowed

    def _refused(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Record a denial in the audit log and the counts: as Denied and return False, or in Audit
        mode, where the request is allowed nevertheless, as WouldDeny and return True."""
        audits = self._authority.audits
        event = AuditEvent(
            decision="WouldDeny" if audits else "Denied",
            principal=self.principal,
            host=self.host,
            listener=self.listener,
            operation=operation.value,
            resource=f"{kind.value}:{name[:200]}",
        )
        self._authority.audit.note(event)
        self._authority.stats.denied += not audits
        self._authority.stats.would_deny += audits
        return audits


class Authority:
    """The committed users and rights as this broker knows them, with its logged-in connections.
    `security`: the rules of the last applied image. `makes_topics`: True if a request for a topic
    may create it (auto.create.topics.enable)."""

    def __init__(self, image: ClusterImage, audit: AuditLog, *, makes_topics: bool = False) -> None:
        self.image = image
        self.makes_topics = makes_topics
        self.security = image.security
        self._asks = image.security.authorization.mode is not Mode.OFF
        self.audit = audit
        self.stats = SecurityStats()
        # Used until one is committed; after that it is the same on all brokers.
        self._own_disguise = secrets.token_bytes(32)
        # Set while a connection's key has an end.
        self._reviewing: asyncio.TimerHandle | None = None
        self._visible = VisibleOfPrincipals()
        self._logged_in: dict[str, dict[ConnectionState, Identity]] = {}
        # Timers for sessions that have an end.
        self._ends: dict[ConnectionState, asyncio.TimerHandle] = {}

    @property
    def audits(self) -> bool:
        return self.security.authorization.mode is Mode.AUDIT

    @property
    def topics(self) -> int:
        """The number of topics in the last applied image."""
        return len(self.image.topics)

    def rights_of(self, connection: ConnectionState) -> Rights | None:
        """Return the rights of a connection, which the connection keeps, or None if authorization
        is off. Called for each request."""
        if not self._asks:
            return None
        rights: Rights | None = connection.rights
        if rights is None:
            rights = connection.rights = Rights(self, connection)
        return rights

    def visible_topics(self, rights: Rights) -> VisibleTopics:
        """Return the topics that the client may describe. The result is cached while rules and
        topics stay the same."""
        topic_ids, security = self.image.topic_ids, self.security
        found = self._visible.get(rights.principal, rights.host, topic_ids, security)
        if found is None:
            sees_any = rights.sees_any(ResourceType.TOPIC)
            found_names = sorted(topic_ids) if sees_any else ()
            names = tuple(n for n in found_names if rights.sees(ResourceType.TOPIC, n))
            all_of_them = len(names) == len(topic_ids)
            found = VisibleTopics(topic_ids, security, None if all_of_them else names)
            self._visible.put(rights.principal, rights.host, found)
        return found

    def remembered_topics(self, rights: Rights) -> VisibleTopics | None:
        """Return the cached topics that the client may describe. Return None if none are cached, or
        if rules or topics have changed since."""
        about = (self.image.topic_ids, self.security)
        return self._visible.get(rights.principal, rights.host, *about)

    # --- logins ---------------------------------------------------------------------------------

    @property
    def disguise(self) -> bytes:
        return self.security.authorization.disguise or self._own_disguise

    def credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self.security.credential(user, mechanism)

    def issuers_of(self, authentication: tuple[str, ...]) -> tuple[TokenIssuer, ...]:
        return self.security.issuers_of(authentication)

    def still_good(self, proof: TokenProof | TokenRefusal) -> TokenProof | TokenRefusal:
        """Check again, by the current rules, the result of a token's verification, which took a
        while in a thread. Return the proof if the issuer still has the key and the user is not
        disabled; otherwise the reason for refusal. A refusal is returned as it is."""
        if isinstance(proof, TokenRefusal):
            return proof
        if not proof.issuer.still_says(self.security.issuers, proof.key):
            return TokenRefusal.UNKNOWN_KEY
        return TokenRefusal.DISABLED if self.security.is_disabled(proof.user) else proof

    def logged_in(self, connection: ConnectionState, identity: Identity) -> None:
        """Record that the connection has logged in with this identity, set its principal, and reset
        its cached rights and quotas. The connection is closed when the credential becomes invalid;
        a session with an end must log in again by then."""
        self._logged_in.setdefault(identity.user, {})[connection] = identity
        connection.logged_in_as(identity.principal)
        connection.login = _mark_of(identity)
        connection.rights = connection.limits = None
        if self._good_until_ms(identity) is not None:
            asyncio.get_running_loop().call_soon(self._review)
        connection.forget = partial(self._gone, connection, identity.user)
        self._end_later(connection, identity)
        self.stats.logins += 1

    def connections_of(self, user: str) -> int:
        """Return the number of open connections that are logged in as this user."""
        return len(self._logged_in.get(user, ()))

    def _end_later(self, connection: ConnectionState, identity: Identity) -> None:
        """Set a timer for the end of the login session, in place of an earlier one; none if the
        session has no end. After the end, a connection must log in again before any other request;
        a connection with a certificate is closed."""
        self._no_end(connection)
        if identity.until_ms is not None:
            left_s = min((identity.until_ms - _wall_ms()) / 1000, SESSION_S_MAX)
            later = asyncio.get_running_loop().call_later
            # A connection with a certificate cannot log in again.
            end = self._expire if identity.certificate is None else self._end
            self._ends[connection] = later(left_s, end, connection, identity)

    def _expire(self, connection: ConnectionState, identity: Identity) -> None:
        assert connection.sasl is not None, "it has logged in"
        connection.sasl.expired = True
        later = asyncio.get_running_loop().call_later
        cut_off = partial(self._cut_off, connection, identity, "session-expired")
        self._ends[connection] = later(EXPIRED_GRACE_MS / 1000, cut_off)

    def _end(self, connection: ConnectionState, identity: Identity) -> None:
        self._cut_off(connection, identity, "certificate-expired")

    def _no_end(self, connection: ConnectionState) -> None:
        timer = self._ends.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _gone(self, connection: ConnectionState, user: str) -> None:
        """Forget a connection that is lost or was closed, with its timer."""
        self._no_end(connection)
        mine = self._logged_in.get(user)
        if mine is not None:
            mine.pop(connection, None)
            if not mine:
                del self._logged_in[user]

    def update(self, old: ClusterImage, new: ClusterImage) -> None:
        """Use the users and rights of a new cluster image, and close connections with credentials,
        keys or certificates that have become invalid. Subscribed to the metadata stream."""
        self.image = new
        before, self.security = self.security, new.security
        self._asks = new.security.authorization.mode is not Mode.OFF
        if before is new.security or not self._logged_in:
            return
        unchanged = before.credentials == new.security.credentials
        unchanged &= before.issuers == new.security.issuers
        unchanged &= before.authorities == new.security.authorities
        unchanged &= before.certificates == new.security.certificates
        if unchanged and before.users == new.security.users:
            return
        self._review()

    def _review(self) -> None:
        """Close connections with logins that are no longer valid. Schedule the next review for the
        time when the first replaced SCRAM credential expires, if there is any."""
        if self._reviewing is not None:
            self._reviewing.cancel()
            self._reviewing = None
        now_ms = _wall_ms()
        ends: list[int] = []
        for user in list(self._logged_in):
            for connection, identity in list(self._logged_in[user].items()):
                until_ms = self._good_until_ms(identity)
                if until_ms is not None and until_ms <= now_ms:
                    self._cut_off(connection, identity)
                elif until_ms is not None:
                    ends.append(until_ms)
        if ends:
            delay_s = (min(ends) - now_ms) / 1000
            self._reviewing = asyncio.get_running_loop().call_later(delay_s, self._review)

    def _good_until_ms(self, identity: Identity) -> int | None:
        """Return the time at which the login becomes invalid, in ms since 1970 (wall clock). Return
        None if it stays valid until the rules change, and 0 if it is invalid."""
        if identity.mechanism == BY_CERTIFICATE:
            shown = identity.certificate
            return None if shown is not None and self.security.believes(shown) else 0
        if identity.mechanism == OAUTHBEARER:
            return None if self._is_believed(identity) else 0
        found = self.credential(identity.user, identity.mechanism)
        if found is None:
            return 0
        if found.stored_key == identity.stored_key:
            return None
        previous = found.previous
        if previous is not None and previous.stored_key == identity.stored_key:
            return previous.until_ms
        return 0

    def _is_believed(self, identity: Identity) -> bool:
        issuer, key, security = identity.issuer, identity.key, self.security
        if issuer is None or key is None or not issuer.still_says(security.issuers, key):
            return False
        return not security.is_disabled(identity.user)

    def close(self) -> None:
        """Cancel all timers and write the audit log."""
        for timer in self._ends.values():
            timer.cancel()
        if self._reviewing is not None:
            self._reviewing.cancel()
        self.audit.close()

    def _cut_off(
        self, connection: ConnectionState, identity: Identity, why: str = "revoked"
    ) -> None:
        self.stats.cut_off += 1
        event = AuditEvent(
            decision="CutOff",
            principal=identity.principal,
            host=connection.host,
            listener=connection.listener_name,
            reason=why,
        )
        self.audit.note(event)
        self._gone(connection, identity.user)
        connection.cut_off(why)


def _mark_of(identity: Identity) -> bytes:
    """Return the fingerprint of the key that was used to log in, or empty bytes if there is
    none."""
    if identity.certificate is not None:
        return mark_of(identity.certificate)
    if identity.issuer is not None and identity.key is not None:
        return token_mark(identity.issuer, identity.key)
    return login_mark(identity.stored_key) if identity.stored_key else b""


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
