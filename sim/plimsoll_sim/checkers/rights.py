"""Checks clients' logins, permissions and quotas against what was committed.

The rules are read one by one, as Kafka's `StandardAuthorizer` specifies: the broker's indexed
lookup is compared with that. A1 NoAnswerBeforeAuthentication · A4 DecidedOnCommitted · A5
RevokedWithin (in the turn in which a broker applies it) · A9 QuotaBound · A10 NoCrossTenantAnswer
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.security.acl import Acl, AclOperation, AclPermission, Pattern, ResourceType
from plimsoll_core.security.client_certificates import OWN_AUTHORITY, TLS_LOGIN
from plimsoll_core.security.sasl import LoginStage
from plimsoll_core.security.scram import ScramMechanism
from plimsoll_core.security.state import Mode, SecurityState
from plimsoll_sim.environment.certificates import of_der
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.hosts.tenants import stored_key
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import Violation

MECHANISM: ScramMechanism = "SCRAM-SHA-512"
_Op = AclOperation
DESCRIBES = frozenset({_Op.READ, _Op.WRITE, _Op.DELETE, _Op.ALTER})
LATE_MS = 1_000
"""Milliseconds after an old password's end within which its connections must be closed."""
WINDOW_US = 30_000_000
LENT_S = 11
"""Seconds of its rate that an idle user may use at once (`quotas.rates`)."""


class RightAsked(NamedTuple):
    """One operation that a principal asks for on one resource."""

    principal: str
    host: str
    operation: AclOperation
    kind: ResourceType
    name: str


def allows(security: SecurityState, asked: RightAsked) -> bool:
    """Return the decision on one request, found by reading all rules one by one."""
    authorization = security.authorization
    if authorization.mode is not Mode.ENFORCE or asked.principal in authorization.super_users:
        return True
    found = [acl for acl in security.acls if _names(acl, asked.kind, asked.name)]
    mine = [
        acl
        for acl in found
        if acl.principal in (asked.principal, "User:*") and acl.host in (asked.host, "*")
    ]
    said = {acl.operation for acl in mine if acl.permission is AclPermission.DENY}
    if said & {asked.operation, _Op.ALL}:
        return False
    said = {acl.operation for acl in mine if acl.permission is AclPermission.ALLOW}
    enough = {asked.operation, _Op.ALL}
    if asked.operation is _Op.DESCRIBE:
        enough |= DESCRIBES
    if said & enough:
        return True
    return not found and authorization.allow_everyone_if_no_acl


def _names(acl: Acl, kind: ResourceType, name: str) -> bool:
    if acl.resource is not kind:
        return False
    if acl.pattern is Pattern.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, "*")


class CommittedImage(NamedTuple):
    """The committed image that is current from this metadata offset on."""

    offset: int
    image: ClusterImage


class RightsChecker:
    """Checks all brokers and tenants of a world."""

    def __init__(self, ghost: MetadataGhost, now_us: Callable[[], int], wall_ms: int) -> None:
        """Create a checker. `wall_ms`: the wall clock at the beginning of the run."""
        self._ghost = ghost
        self._now_us = now_us
        self._wall_ms = wall_ms
        # Images with other rules, users or topics than the one before.
        self._images = [CommittedImage(0, ghost.image)]
        # The metadata offsets that each broker had applied, with their times.
        self._applied: dict[str, deque[tuple[int, int]]] = {}
        # By broker and user: the accepted bytes with their times.
        self._used: dict[tuple[str, str], deque[tuple[int, int]]] = {}

    # --- what is committed, and what brokers know of it -------------------------------------------

    def committed(self) -> None:
        """Store the committed image if its rules, users or topics changed."""
        last, image = self._images[-1].image, self._ghost.image
        if image.security is not last.security or image.topic_ids is not last.topic_ids:
            self._images.append(CommittedImage(int(image.next_offset), image))

    def look(self, host: BrokerHost) -> None:
        """Check the connections of a broker after a step in which the broker ran."""
        manager = host.manager
        image = None if manager is None else manager.image
        if image is None or host.node is None or host.node._serving is None:
            return
        offset = int(image.next_offset)
        known = self._applied.setdefault(host.name, deque(maxlen=1_000))
        if not known or known[-1][1] != offset:
            known.append((self._now_us(), offset))
        for server in host.node._serving.clients._open.values():
            by = server.listener.authentication
            check = self._check_certified if by == (TLS_LOGIN,) else self._check_session
            for session in server._open if by else ():
                check(host, image.security, session)

    def _check_session(self, host: BrokerHost, security: SecurityState, session: Any) -> None:
        sasl = session._connection.sasl
        if session._transport is None or sasl.stage is not LoginStage.AUTHENTICATED:
            return
        user, key = sasl.identity.user, sasl.identity.stored_key
        good = self._good_keys(security, user, LATE_MS)
        if key not in good:
            raise Violation("RevokedWithin", f"{host.name} still serves {user}, a revoked user")

    def _check_certified(self, host: BrokerHost, security: SecurityState, session: Any) -> None:
        connection = session._connection
        if session._transport is None:
            return
        assert host.node is not None, "it serves"
        assert host.node.authority is not None, "it serves"
        user = connection.principal.removeprefix("User:")
        identity = host.node.authority._logged_in.get(user, {}).get(connection)
        proof = None if identity is None else identity.certificate
        if proof is None or not is_still_login(security, proof, self._now_ms - LATE_MS):
            text = f"{host.name} still serves {user}, and its certificate is no login"
            raise Violation("RevokedWithin", text)

    @property
    def _now_ms(self) -> int:
        """Return the wall clock, in milliseconds."""
        return self._wall_ms + self._now_us() // 1_000

    def _good_keys(self, security: SecurityState, user: str, late_ms: int) -> tuple[bytes, ...]:
        """Return the stored keys of the passwords with which the user may be logged in now.
        `late_ms`: how long an expired password is still accepted."""
        declared = security.users.get(user)
        found = security.credentials.get((user, MECHANISM))
        if found is None or (declared is not None and declared.disabled):
            return ()
        previous = found.previous
        if previous is None or self._now_ms >= previous.until_ms + late_ms:
            return (found.stored_key,)
        return (found.stored_key, previous.stored_key)

    def applied(self, host: str, us: int) -> int:
        """Return the metadata offset that a broker had applied at the time `us` (virtual
        microseconds)."""
        known = self._applied.get(host, ())
        return max((offset for when, offset in known if when <= us), default=0)

    def _between(self, first: int, last: int) -> list[ClusterImage]:
        """Return the images that were current while a broker applied the metadata from offset
        `first` to `last`."""
        before = [one for one in self._images if one.offset <= first][-1:]
        later = [one for one in self._images if first < one.offset <= last]
        return [one.image for one in (*before, *later)]

    # --- what tenants were told -------------------------------------------------------------------

    def logged_in(self, host: str, since_us: int, user: str, password: str) -> None:
        """Check that the password with which a user logged in was committed."""
        images = self._between(self.applied(host, since_us), self.applied(host, self._now_us()))
        for image in images:
            found = image.security.credentials.get((user, MECHANISM))
            if found is not None:
                key = stored_key(password, found.salt, found.iterations)
                if key in self._good_keys(image.security, user, LATE_MS):
                    return
        raise Violation("DecidedOnCommitted", f"{host} lets {user} in by what is no password")

    def certified(self, host: str, since_us: int, user: str, der: bytes) -> None:
        """Check a login by a certificate, which the client presented from `since_us` on."""
        images = self._between(self.applied(host, since_us), self.applied(host, self._now_us()))
        since_ms = self._wall_ms + since_us // 1_000
        if not any(is_login(image.security, der, user, since_ms) for image in images):
            text = f"{host} lets {user} in by a certificate that is no login"
            raise Violation("DecidedOnCommitted", text)

    def answered_first(self, host: str) -> None:
        """Report a violation: a broker answered a request other than a login before the login."""
        raise Violation(
            "NoAnswerBeforeAuthentication", f"{host} answers a client that has not logged in"
        )

    def decided(
        self, host: str, since_us: int, asked: RightAsked, *, allowed: bool, late_us: int
    ) -> None:
        """Check that a request was allowed, or refused, by rules that held at that time. `late_us`:
        longest time that an answer takes; a request that waited longer was decided again."""
        now_us = self._now_us()
        since_us = max(since_us, now_us - late_us)
        images = self._between(self.applied(host, since_us), self.applied(host, now_us))
        self._decided(host, images, asked, allowed)

    @property
    def newest(self) -> int:
        """Return the end offset of the committed metadata."""
        return int(self._ghost.image.next_offset)

    def carried_out(self, since: int, asked: RightAsked) -> None:
        """Check a request that a controller carried out, by the rules that were committed then.
        `since`: end of the committed metadata when the request was sent."""
        self._decided("the controller", self._between(since, self.newest), asked, True)

    def refused_by_anybody(self, host: str, since_us: int, asked: RightAsked) -> None:
        """Check a refusal, which may come from the broker or from a controller."""
        images = self._between(self.applied(host, since_us), self.newest)
        self._decided(f"{host} or a controller", images, asked, False)

    def _decided(
        self, who: str, images: list[ClusterImage], asked: RightAsked, allowed: bool
    ) -> None:
        if all(allows(image.security, asked) is not allowed for image in images):
            told = "answered" if allowed else "refused"
            raise Violation("DecidedOnCommitted", f"{who}: {asked} is {told}")

    def told_topics(self, host: str, since_us: int, principal: str, names: set[str]) -> None:
        """Check the topics in an answer to a Metadata request for all topics."""
        last = self.applied(host, self._now_us())
        images = self._between(self.applied(host, since_us), last)
        if all(self._visible(image, principal, host) != names for image in images):
            raise Violation("NoCrossTenantAnswer", f"{host} tells {principal} of {sorted(names)}")

    def _visible(self, image: ClusterImage, principal: str, host: str) -> set[str]:
        about = (principal, "", _Op.DESCRIBE, ResourceType.TOPIC)
        return {
            name for name in image.topic_ids if allows(image.security, RightAsked(*about, name))
        }

    def used(self, host: str, user: str, size: int, bound: int) -> None:
        """Check the number of bytes that a broker accepted from a user in 30 s against the user's
        quota in bytes a second."""
        taken, now_us = self._used.setdefault((host, user), deque()), self._now_us()
        taken.append((now_us, size))
        while taken[0][0] <= now_us - WINDOW_US:
            taken.popleft()
        total = sum(size for _, size in taken)
        most = bound * (WINDOW_US // 1_000_000 + LENT_S) + 2 * size
        if total > most:
            text = f"{host} took {total} bytes of {user} in 30 s, and may take {most}"
            raise Violation("QuotaBound", text)


# --- is a certificate a valid login? --------------------------------------------------------------


def issuers(security: SecurityState, *, key: str = "", sha256: str = "") -> set[str]:
    """Return the names of the authorities that have a certificate with this key or fingerprint."""
    return {
        one.name
        for one in security.authorities
        for der in one.certificates
        if of_der(der).key == key or hashlib.sha256(der).hexdigest() == sha256
    }


def is_login(security: SecurityState, der: bytes, user: str, now_ms: int) -> bool:
    """Return True if a client that presents this certificate is logged in as this user."""
    one = of_der(der)
    signers = issuers(security, key=one.issuer)
    if OWN_AUTHORITY in signers:
        named = _has(security, user, hashlib.sha256(der).hexdigest())
    else:
        named = bool(signers) and one.subject == user
    return named and not _is_disabled(security, user) and now_ms < one.not_after_ms


def is_still_login(security: SecurityState, proof: Any, now_ms: int) -> bool:
    """Return True if a connection that was let in by this `CertificateProof` may stay."""
    signers = issuers(security, sha256=proof.anchor)
    if proof.own:
        named = OWN_AUTHORITY in signers and _has(security, proof.user, proof.sha256)
    else:
        named = bool(signers - {OWN_AUTHORITY})
    return named and not _is_disabled(security, proof.user) and now_ms < proof.until_ms


def cut_off(security: SecurityState, issuers_of: Mapping[str, str], now_ms: int) -> Iterator[str]:
    """Yield a sentence for each committed and unexpired certificate that no trusted authority
    signed. `issuers_of`: the key that signed a certificate, by the certificate's fingerprint."""
    believed = {
        of_der(der).key
        for one in security.authorities
        if one.name == OWN_AUTHORITY
        for der in one.certificates
    }
    for user, row in sorted(security.certificates.items()):
        for one in row.certificates:
            if one.not_after_ms > now_ms and issuers_of[one.sha256] not in believed:
                yield f"a certificate of {user}"


def _has(security: SecurityState, user: str, sha256: str) -> bool:
    row = security.certificates.get(user)
    return row is not None and sha256 in {one.sha256 for one in row.certificates}


def _is_disabled(security: SecurityState, user: str) -> bool:
    declared = security.users.get(user)
    return declared is not None and declared.disabled
