"""What is committed about users and rights, as this broker knows it, and whom it lets do what.

One for each lifetime of a broker; told of every image in the turn in which it is applied.  A
connection's decisions are remembered for as long as what is committed is the same.  Whoever logged
in by a key that is not committed any more is cut off in that turn.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from functools import partial
from uuid import UUID

from plimsoll_broker.security.audit_log import AuditEvent, AuditLog
from plimsoll_broker.security.decisions import Decisions
from plimsoll_broker.security.security_stats import SecurityStats
from plimsoll_broker.security.visible_topics import VisibleOfPrincipals, VisibleTopics
from plimsoll_broker.server.dispatch import Buffer, ConnectionState
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.messages.security import OnBehalf
from plimsoll_core.security.acl import (
    CLUSTER_NAME,
    TOLD_OPERATIONS,
    AclOperation,
    ResourceType,
    operation_bits,
)
from plimsoll_core.security.acl_index import AclQuestion
from plimsoll_core.security.client_certificates import BY_CERTIFICATE, mark_of
from plimsoll_core.security.sasl import EXPIRED_GRACE_MS, Identity
from plimsoll_core.security.scram import ScramCredential, ScramMechanism, login_mark
from plimsoll_core.security.state import Mode, Security
from plimsoll_core.security.tokens import (
    OAUTHBEARER,
    TokenIssuer,
    TokenProof,
    TokenRefusal,
    token_mark,
)

SESSION_S_MAX = 10 * 365 * 24 * 3600.0
"""Certificates may be good for thousands of years, which no timer is."""

_TOPIC = ResourceType.TOPIC


class Rights:
    """Of one connection."""

    __slots__ = ("_authority", "_known", "_login", "host", "listener", "principal")

    def __init__(self, authority: Authority, connection: ConnectionState) -> None:
        self._authority = authority
        self._known = Decisions(authority.security, {}, {})
        self.principal = connection.principal
        self.host = connection.host
        self.listener = connection.listener_name
        # By what its client logged in: a request that outlives that is its client's of then.
        self._login = connection.login

    @property
    def behalf(self) -> OnBehalf:
        """For what is asked of the controller."""
        return OnBehalf(principal=self.principal, host=self.host, login=self._login)

    @property
    def security(self) -> Security:
        """What the next decision is made by."""
        return self._authority.security

    def topic(self, operation: AclOperation, name: str) -> bool:
        known = self._known
        if known[0] is self._authority.security and known[1].get((operation, _TOPIC, name)):
            return True  # what nearly every request asks was decided before
        return self._may(operation, _TOPIC, name)

    def group(self, operation: AclOperation, name: str) -> bool:
        return self._may(operation, ResourceType.GROUP, name)

    def transactional_id(self, operation: AclOperation, name: str) -> bool:
        return self._may(operation, ResourceType.TRANSACTIONAL_ID, name)

    def cluster(self, operation: AclOperation) -> bool:
        return self._may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def cluster_quietly(self, operation: AclOperation) -> bool:
        """Where another right would do, too: not having this one is no attempt."""
        return self._decide(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def reads_quietly(self, topic: str) -> bool:
        """Whether the topic may be read, where that is asked for again and noted then."""
        return self._is_told(AclOperation.READ, _TOPIC, topic)

    def topic_name(self, topic_id: UUID | None) -> str | None:
        """Of a topic that there is."""
        topic = self._authority.image.topics.get(topic_id)  # type: ignore[arg-type]
        return None if topic is None else topic.name

    def there_is(self, name: str) -> bool:
        """Such a topic."""
        return name in self._authority.image.topic_ids

    def may_be_made(self, name: str) -> bool:
        """Whether the client may make the topic by asking for it, where that makes it."""
        if self.there_is(name) or not self._authority.makes_topics:
            return True
        if self.cluster_quietly(AclOperation.CREATE):
            return True
        return self.topic(AclOperation.CREATE, name)

    def visible_topics(self) -> VisibleTopics:
        """All that may be described."""
        return self._authority.visible_topics(self)

    def has_asked(self, key: int, version: int, body: Buffer) -> bool:
        """Whether a request for all topics is remembered as one for those that it sees."""
        visible = self._authority.remembered_topics(self)
        return visible is not None and visible.has_asked(key, version, body)

    def sees(self, kind: ResourceType, name: str) -> bool:
        """Whether it is left in a list: what is left out is no attempt."""
        return self._is_told(AclOperation.DESCRIBE, kind, name)

    def sees_any(self, kind: ResourceType) -> bool:
        """Whether there may be anything of the kind that `sees` leaves in; else none is looked
        at."""
        authority = self._authority
        may_see_any = authority.security.may_see_any
        return authority.audits or may_see_any(self.principal, self.host, kind)

    def is_told_configs(self, name: str) -> bool:
        """Whether the answer to its creation tells a topic's configs: who makes a topic has not
        asked for them, so what is left out is no attempt."""
        return self._is_told(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)

    def operations(self, kind: ResourceType, name: str) -> int:
        """What it may, as the bits of an answer (KIP-430): to ask is no attempt."""
        return operation_bits(
            operation for operation in TOLD_OPERATIONS[kind] if self._is_told(operation, kind, name)
        )

    def on_the_cluster(self) -> int:
        """Return the authorized cluster operations, none without DESCRIBE."""
        if not (self._authority.audits or self.cluster_quietly(AclOperation.DESCRIBE)):
            return 0
        return self.operations(ResourceType.CLUSTER, CLUSTER_NAME)

    def on_any_topic(self, operation: AclOperation) -> bool:
        security = self._authority.security
        if security.allows_on_any(self.principal, self.host, operation, _TOPIC):
            return True
        return self._refused(operation, _TOPIC, "any")

    def _is_told(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Nothing is noted; where nothing is enforced, all is told."""
        return self._authority.audits or self._decide(operation, kind, name)

    def _may(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        return self._decide(operation, kind, name) or self._refused(operation, kind, name)

    def _decide(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        security, known = self._authority.security, self._known
        if known[0] is not security:
            known = self._known = Decisions(security, {}, {})
        question = (operation, kind, name)
        allowed = known.topics.get(question)
        if allowed is None:
            allowed = known.others.get(question)
        if allowed is None:
            asked = AclQuestion(self.principal, self.host, operation, kind, name)
            allowed = security.allows(asked)
            # Of what is denied it is not looked whether it exists: what is remembered for longer
            # is answered quicker.
            there_is = allowed and kind is _TOPIC and self.there_is(name)
            known.remember(question, there_is=there_is, allowed=allowed)
        return allowed

    def _refused(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Noted; and done nevertheless, where nothing is enforced."""
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
    """`security`: as of the last image that was applied.  `makes_topics`: whether asking for a
    topic makes it (auto.create.topics.enable)."""

    def __init__(self, image: ClusterImage, audit: AuditLog, *, makes_topics: bool = False) -> None:
        self.image = image
        self.makes_topics = makes_topics
        self.security = image.security
        self._asks = image.security.authorization.mode is not Mode.OFF
        self.audit = audit
        self.stats = SecurityStats()
        # Until one is committed; after that it is the same on all brokers.
        self._own_disguise = secrets.token_bytes(32)
        # Set while somebody is logged in by a key that has an end.
        self._reviewing: asyncio.TimerHandle | None = None
        self._visible = VisibleOfPrincipals()
        self._logged_in: dict[str, dict[ConnectionState, Identity]] = {}
        # When sessions that have an end are over.
        self._ends: dict[ConnectionState, asyncio.TimerHandle] = {}

    @property
    def audits(self) -> bool:
        return self.security.authorization.mode is Mode.AUDIT

    @property
    def topics(self) -> int:
        """How many there are."""
        return len(self.image.topics)

    def rights_of(self, connection: ConnectionState) -> Rights | None:
        """None: nobody asks for rights here.  Of each request."""
        if not self._asks:
            return None
        rights: Rights | None = connection.rights
        if rights is None:
            rights = connection.rights = Rights(self, connection)
        return rights

    def visible_topics(self, rights: Rights) -> VisibleTopics:
        """Remembered while rules and topics are the same."""
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
        """None: rules or topics have changed since."""
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
        """By what is committed now: a token is verified in a thread, which takes its time."""
        if isinstance(proof, TokenRefusal):
            return proof
        if not proof.issuer.still_says(self.security.issuers, proof.key):
            return TokenRefusal.UNKNOWN_KEY
        return TokenRefusal.DISABLED if self.security.is_disabled(proof.user) else proof

    def logged_in(self, connection: ConnectionState, identity: Identity) -> None:
        """From now on the connection is cut off when the login would not be good any more."""
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
        """How many are logged in as the user."""
        return len(self._logged_in.get(user, ()))

    def _end_later(self, connection: ConnectionState, identity: Identity) -> None:
        """Nothing is answered after the session's end but another login, which begins a new one."""
        self._no_end(connection)
        if identity.until_ms is not None:
            left_s = min((identity.until_ms - _wall_ms()) / 1000, SESSION_S_MAX)
            later = asyncio.get_running_loop().call_later
            # With a certificate there is no other login on the same connection.
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
        """The connection was lost."""
        self._no_end(connection)
        mine = self._logged_in.get(user)
        if mine is not None:
            mine.pop(connection, None)
            if not mine:
                del self._logged_in[user]

    def update(self, old: ClusterImage, new: ClusterImage) -> None:
        """The metadata stream's callback."""
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
        """Cut off whose login would not be good now; and again when the next one ends to be so."""
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
        """None: for as long as nothing changes; 0: not any more."""
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
        """Nobody is served any more."""
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
    """Of the key by which it logged in."""
    if identity.certificate is not None:
        return mark_of(identity.certificate)
    if identity.issuer is not None and identity.key is not None:
        return token_mark(identity.issuer, identity.key)
    return login_mark(identity.stored_key) if identity.stored_key else b""


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
