"""Users of a cluster with logins and rights: their declarations, their clients, and the checks of
the answers against what was committed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, Protocol

from msgspec.structs import replace

from plimsoll_core.errors import Code
from plimsoll_core.security.acl import AclOperation, ResourceType
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_operator.pki.authority import KeyPair
from plimsoll_sim.checkers.rights import RightAsked, RightsChecker, cut_off
from plimsoll_sim.cluster.run_options import RunOptions
from plimsoll_sim.cluster.specs import ENFORCED
from plimsoll_sim.desired.objects import AppliedObjects
from plimsoll_sim.desired.users import (
    GREEDY,
    TENANT_TOPICS,
    TENANTS,
    DeclaredUsers,
)
from plimsoll_sim.engine.determinism import EPOCH_NS
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.environment.certificates import ders, describe
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.hosts.certified_tenants import CertifiedTenant
from plimsoll_sim.hosts.certified_users import (
    CERTIFIED,
    EXTERNAL,
    CertifiedUsers,
    user_name,
)
from plimsoll_sim.hosts.tenants import Tenancy, Tenant, TenantQuestion
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import Violation

AskedMode = Literal["Off", "Enforce"]
ROUNDS = 3
"""Number of times that a client reads from a connection for one answer: it may come in two pieces,
after another answer."""


class Tenants:
    """Users with logins and rights, their clients, and the checks of the clients' answers. `told`:
    number of answers that the clients got, by kind."""

    def __init__(self, parts: SecuredParts) -> None:
        self._parts = parts
        # The users that log in by certificates; None if none do.
        self.certified = (
            CertifiedUsers(parts.objects, lambda: self._now_ms) if parts.options.certified else None
        )
        self.users = DeclaredUsers(parts.objects)
        self.rights = RightsChecker(parts.ghost, self._now_us, EPOCH_NS // 1_000_000)
        self.told: Counter[str] = Counter()
        # The security state that was checked last.
        self._security = parts.ghost.image.security

    def _now_us(self) -> int:
        return self._parts.loop.now_us

    @property
    def _now_ms(self) -> int:
        """Return the wall clock, in milliseconds."""
        return EPOCH_NS // 1_000_000 + self._now_us() // 1_000

    # --- declarations and clients
    # -----------------------------------------------------------------

    def declare(self) -> None:
        for user in (*TENANTS, GREEDY):
            self.users.declare(user)
        if self.certified is not None:
            for user in (*CERTIFIED, EXTERNAL):
                self.certified.declare(user)

    def ask_for_rights(self, mode: AskedMode) -> None:
        """Set in the LogCluster's spec whether rights are enforced."""
        objects = self._parts.objects
        objects.edit(LOG_CLUSTERS, objects.name, authorization=replace(ENFORCED, mode=mode))

    def clients(self, stopped: Callable[[], bool], rng: random.Random) -> list[Tenant]:
        """Return two clients for each tenant; each has connections to several brokers."""
        users: tuple[str, ...] = (*TENANTS, *TENANTS, GREEDY)
        if self.certified is not None:
            users = (*TENANTS[:1], *CERTIFIED, *CERTIFIED, EXTERNAL, EXTERNAL)
        return [self.client(user, stopped, random.Random(rng.getrandbits(64))) for user in users]

    def client(self, user: str, stopped: Callable[[], bool], rng: random.Random) -> Tenant:
        parts, certified = self._parts, self.certified
        by_certificate = certified is not None and user in (*CERTIFIED, EXTERNAL)
        tenancy = Tenancy(
            user=user_name(user) if by_certificate else user,
            hosts=tuple(host.name for host in parts.brokers.values()),
            topics=TENANT_TOPICS,
            passwords=lambda: self.users.passwords[user],
            leader=self._leader,
            now_us=self._now_us,
            committed=lambda: self.rights.newest,
            stopped=stopped,
            think_ms=parts.options.think_ms,
            greedy=user == GREEDY,
        )
        if certified is None or not by_certificate:
            return Tenant(tenancy, rng, self)
        forged = partial(certified.forged, user)
        return CertifiedTenant(tenancy, rng, self, partial(certified.pairs_of, user), forged)

    def unfinished(self) -> Iterator[str]:
        """Yield a sentence for each thing that is unfinished after faults have stopped."""
        security = self._parts.ghost.image.security
        for user in CERTIFIED if self.certified is not None else ():
            assert self.certified is not None
            if not self.certified.is_declared(user) or self.certified.disabled(user):
                continue
            pairs, row = self.certified.pairs_of(user), security.certificates.get(user)
            newest = describe(pairs[-1].certificate).sha256 if pairs else ""
            if row is None or row.certificates[0].sha256 != newest:
                yield f"{user}'s newest certificate is not committed"

    def _leader(self, topic: str) -> str | None:
        image = self._parts.ghost.image
        topic_id = image.topic_ids.get(topic)
        found = (p for key, p in image.partitions.items() if key.topic_id == topic_id)
        leader = next((p.leader for p in found), None)
        return None if leader is None else self._parts.brokers[int(leader)].name

    def committed(self) -> None:
        """Check the users and rules after a commit. Raises a violation of A7."""
        before, after = self._security, self._parts.ghost.image.security
        self.rights.committed()
        if self.certified is None or after is before:
            return
        self._security = after
        if after.authorities != before.authorities:
            self.told["authorities"] += 1
        if cut := next(cut_off(after, self.certified.issuers, self._now_ms), None):
            raise Violation("RotationCutsNobody", f"no authority is believed that signed {cut}")

    def look(self, host: BrokerHost) -> None:
        self.rights.look(host)

    # --- what they were told ----------------------------------------------------------------------

    def logged_in(self, told: TenantQuestion, password: str) -> None:
        self.told["logins"] += 1
        self.rights.logged_in(told.host, told.since_us, told.user, password)

    def certified_by(self, told: TenantQuestion, shown: KeyPair) -> None:
        self.told["logins by certificates"] += 1
        der = ders(shown.certificate)[0]
        self.rights.certified(told.host, told.since_us, told.user, der)

    def answered_first(self, told: TenantQuestion) -> None:
        self.rights.answered_first(told.host)

    def topic(self, told: TenantQuestion, operation: str, name: str, *, allowed: bool) -> None:
        self.told[f"{operation} {'answered' if allowed else 'refused'}"] += 1
        asked, late_us = _asked(told, operation, name), ROUNDS * self._parts.options.latency_us.most
        self.rights.decided(told.host, told.since_us, asked, allowed=allowed, late_us=late_us)

    def topics(self, told: TenantQuestion, names: set[str]) -> None:
        self.told["lists"] += 1
        self.rights.told_topics(told.host, told.since_us, f"User:{told.user}", names)

    def created(self, told: TenantQuestion, name: str, code: int) -> None:
        asked = _asked(told, "Create", name)
        if code == Code.NONE:
            self.told["Create answered"] += 1
            self.rights.carried_out(told.committed, asked)
        elif code == Code.TOPIC_AUTHORIZATION_FAILED:
            self.told["Create refused"] += 1
            self.rights.refused_by_anybody(told.host, told.since_us, asked)

    def wrote(self, told: TenantQuestion, size: int) -> None:
        if told.user == GREEDY:
            self.told["written bytes of the greedy"] += size
            self.rights.used(told.host, told.user, size, self.users.quota(told.user))


def _asked(told: TenantQuestion, operation: str, name: str) -> RightAsked:
    return RightAsked(f"User:{told.user}", "", AclOperation(operation), ResourceType.TOPIC, name)


class SecuredParts(Protocol):
    """The part of a world that its secured parts use. Implemented by `World`."""

    options: RunOptions
    loop: SimLoop
    ghost: MetadataGhost
    objects: AppliedObjects
    brokers: dict[int, BrokerHost]
