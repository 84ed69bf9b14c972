"""The additional parts of a secured cluster: certificates, mounts of Secrets, checkers, intruders.

A `World` has one if its options ask for it, and calls it after every step.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from plimsoll_core.security.inside import InsideMode
from plimsoll_core.security.state import Mode
from plimsoll_net.inside_identity import AUTHORITIES, CERTIFICATE, fingerprints
from plimsoll_operator.api.certificates import Certificates, InternalCertificates
from plimsoll_operator.api.labels import ROTATE_INSIDE
from plimsoll_operator.api_server.store import ObjectChange
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_operator.pki.rotation import Authorities
from plimsoll_operator.reconcile.cluster.inside import NAMES
from plimsoll_operator.reconcile.shared.certificate_signing import APART_MS
from plimsoll_sim.checkers.inside import InsideChecker
from plimsoll_sim.cluster.specs import CERTIFIED
from plimsoll_sim.cluster.tenancy import SecuredParts, Tenants
from plimsoll_sim.engine.process import Process
from plimsoll_sim.environment import security_seams
from plimsoll_sim.environment.api_server_faults import Weather
from plimsoll_sim.environment.certificates import all_of, describe
from plimsoll_sim.hosts import intruder
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.hosts.certified_users import CertifiedUsers
from plimsoll_sim.hosts.intruder import IntrudedHost, Intruder, Loot
from plimsoll_sim.hosts.operators import OperatorHost
from plimsoll_sim.hosts.secret_mounts import SecretMounts
from plimsoll_sim.oracle.partition_ghost import Violation

DAY_MS = 24 * 3_600_000


class Secured:
    """Parts of a world with certificates or logins. `rng`: a random generator of their own, so that
    the world's other draws stay the same."""

    def __init__(self, parts: SecuredParts, rng: random.Random) -> None:
        self._parts = parts
        self._rng = rng
        self.mounts = SecretMounts(parts.loop, rng)
        if parts.options.inside or parts.options.certified:
            self.mounts.add(parts.brokers)
        # The users that log in; None if none do.
        self.tenants = Tenants(parts) if parts.options.tenants else None
        calm = parts.options.calm
        self._stays_open = parts.options.inside_says == "before"
        self.inside = InsideChecker(
            parts.ghost, parts.ghost.image.cluster_id, parts.brokers, self._issuer,
            calm=calm, stays_open=self._stays_open,
        )  # fmt: skip
        # How often the administrator asked for another authority.
        self.asked = 0
        # The outcomes of the intruders' attempts.
        self.attempts: Counter[str] = Counter()

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Replace certificates and mounts of Secrets by simulated ones, within the context."""
        options = self._parts.options
        if not options.inside and not options.certified:
            yield
            return
        with security_seams.instead(self.mounts.mounted, options.clients_authority_ms):
            if self._certified is not None:
                self._certified.replace_partner()
            yield

    @property
    def _certified(self) -> CertifiedUsers | None:
        return None if self.tenants is None else self.tenants.certified

    def stored(self, change: ObjectChange, before: int) -> None:
        """Check a write to the API server. `before`: number of records committed before the
        write."""
        if len(self._parts.ghost.history) > before:
            self.inside.committed()
            if self.tenants is not None:
                self.tenants.committed()
        self.mounts.stored(change)
        certified, known = self._certified, self.inside.authorities
        if change.type == "ADDED":
            known = None  # a Secret that was lost is made anew
        if certified is not None:
            of_clients = certified.authorities
            certified.stored(change)
            self._check_due(of_clients, certified.authorities)
        self.inside.stored(change)
        self._check_due(known, self.inside.authorities)

    def _check_due(self, before: Authorities | None, after: Authorities | None) -> None:
        """Check that a new authority is announced only on request, or after two thirds of the
        present one's lifetime by the API server's clock, whatever the operators' clocks show."""
        if before is None or after is None or before.announced is not None:
            return
        replaced = after.announced is not None or before.current != after.current
        due_ms = describe(before.current.certificate).validity.due_ms()
        now_ms = self._parts.objects.server_ms
        if replaced and before.served == after.served and now_ms + APART_MS < due_ms:
            left = (due_ms - now_ms) // DAY_MS
            raise Violation("ReplacedWhenDue", f"an authority is replaced {left} days too early")

    def look(self, host: BrokerHost) -> None:
        """Check the connections of a broker after a step in which the broker ran."""
        self.inside.look(host)
        if self.tenants is not None:
            self.tenants.rights.look(host)

    def begin(self, stopped: Callable[[], bool]) -> list[Process]:
        """Declare the users, and return the processes of their clients. Called when the cluster has
        started."""
        if self._stays_open:
            self.says(None)
        if self.tenants is None:
            return []
        self.tenants.declare()
        processes = []
        for number, client in enumerate(self.tenants.clients(stopped, self._rng)):
            name = f"tenant-{number}-{client.name}"
            process = Process(self._parts.loop, name, name)
            process.start(client.forever())
            processes.append(process)
        return processes

    def _issuer(self, sha256: str) -> str:
        """Return the fingerprint of the authority that signed a broker's certificate, given the
        certificate's fingerprint."""
        known = self.inside.authorities
        trusted = b"" if known is None else known.trusted
        keys = {one.key: print_ for one, print_ in zip(
            all_of(trusted), fingerprints(trusted), strict=True)}  # fmt: skip
        for held in self.mounts.once.values():
            for files in held:
                chain = files.get(CERTIFICATE, b"")
                if chain and fingerprints(chain)[0] == sha256:
                    return keys.get(all_of(chain)[0].issuer, "")
        return ""

    # --- the administrator ------------------------------------------------------------------------

    def says(self, mode: InsideMode | None) -> None:
        """State a mode of TLS in the LogCluster's spec; None: remove it from the spec."""
        objects = self._parts.objects
        internal = None if mode is None else InternalCertificates(mode=NAMES[mode])
        stated = None if internal is None else Certificates(internal=internal)
        objects.edit(LOG_CLUSTERS, objects.name, certificates=stated)
        if mode is not None:
            self._stays_open = self.inside.stays_open = mode is InsideMode.OFF

    def lose_status(self) -> None:
        """Remove the LogCluster's status, as if the object had been restored from a backup."""
        objects = self._parts.objects
        objects.drop_status(LOG_CLUSTERS, objects.name)

    def rotate(self) -> None:
        """Request another internal authority, by the LogCluster's annotation."""
        self.asked += 1
        objects = self._parts.objects
        objects.annotate(LOG_CLUSTERS, objects.name, ROTATE_INSIDE, f"request-{self.asked}")

    def days_pass(self, days: int, operators: list[OperatorHost], weather: Weather) -> None:
        """Move the clocks of the operators' present processes ahead by days, and that of the API
        server, which never goes back."""
        weather.ahead_ms = max(weather.ahead_ms, days * DAY_MS)
        self.mislead(days, operators)

    def mislead(self, days: int, operators: list[OperatorHost]) -> None:
        """Set the clocks of these operators' present processes wrong by `days`."""
        for host in operators:
            if host.process is not None:
                host.process.wall_offset_ms = days * DAY_MS

    @property
    def closed(self) -> bool:
        """Return True if every listener requires the declared credentials."""
        image, options = self._parts.ghost.image, self._parts.options
        if options.tenants and image.security.authorization.mode is not Mode.ENFORCE:
            return False
        if options.certified and not all(map(_serves_certified, self._parts.brokers.values())):
            return False
        return not options.inside or image.inside.mode is self._wanted

    @property
    def _wanted(self) -> InsideMode:
        return InsideMode.OFF if self._stays_open else InsideMode.REQUIRED

    def unfinished(self) -> Iterator[str]:
        """Yield a sentence for each thing that is unfinished after faults have stopped."""
        if self.tenants is not None:
            yield from self.tenants.unfinished()
        if not self._parts.options.inside:
            return
        inside, known = self._parts.ghost.image.inside, self.inside.authorities
        if inside.mode is not self._wanted:
            yield f"inside, the mode is {inside.mode.value}"
        if self._stays_open:
            return
        if known is None or known.announced is not None or known.former:
            yield "the internal authority is being replaced"
        elif self.asked and known.served != f"request-{self.asked}":
            yield "another internal authority is asked for"
        for host in self._parts.brokers.values():
            identity = None if host.node is None else host.node.inside.identity
            allowed = inside.of(host.id)
            if host.running and (identity is None or allowed != (identity.sha256,)):
                yield f"{host.name} may show {len(allowed)} certificates"

    # --- intruders --------------------------------------------------------------------------------

    def loot(self, rng: random.Random, claimed: int) -> Loot:
        """Return the certificate that an intruder has stolen which claims to be the broker
        `claimed`."""
        once = self.mounts.once
        kind = rng.choice(("nothing", "older", "older", "older", "another's", "forged"))
        others = [one for one in sorted(once) if one != claimed]
        if kind == "older" and len(once.get(claimed, ())) > 1:
            files = rng.choice(once[claimed][:-1])
            return self._with_newest_trust(f"an older Secret of broker {claimed}", claimed, files)
        if kind == "another's" and others:
            return self.newest_of(rng.choice(others))
        if kind == "forged" and self.inside.authorities is not None:
            return intruder.forged(
                self._parts.ghost.image.cluster_id, claimed, self.inside.authorities.trusted
            )
        return intruder.NOTHING

    def newest_of(self, broker_id: int) -> Loot:
        """Return the present content of a broker's Secret, as an intruder's loot."""
        held = self.mounts.once.get(broker_id)
        if not held:
            return intruder.NOTHING
        return self._with_newest_trust(f"the Secret of broker {broker_id}", broker_id, held[-1])

    def _with_newest_trust(self, name: str, broker_id: int, files: dict[str, bytes]) -> Loot:
        """Return the stolen files together with the authorities that are trusted now, which are no
        secret."""
        known = self.inside.authorities
        if CERTIFICATE not in files or known is None:
            return intruder.NOTHING
        return intruder.stolen(name, broker_id, {**files, AUTHORITIES: known.trusted})

    def intruder(self, loot: Loot, claimed: int) -> Intruder | None:
        """Return an intruder that claims to be this broker; None if no broker has that id."""
        broker = next(
            (one for one in self._parts.ghost.image.brokers.values() if one.id == claimed), None
        )
        return (
            None if broker is None else Intruder(self._parts.ghost.image.cluster_id, loot, broker)
        )


def _serves_certified(host: BrokerHost) -> bool:
    """Return True if the broker does not serve at all, or serves the certificates' listener and
    knows that rights are enforced. Before it knows that, any holder of a partner's certificate may
    do everything there."""
    serving = None if host.node is None else host.node._serving
    if serving is None:
        return True
    enforced = serving.authority.security.authorization.mode is Mode.ENFORCE
    return enforced and CERTIFIED.name in serving.clients.servers


def of_broker(host: BrokerHost) -> IntrudedHost:
    return IntrudedHost(
        host=host.name,
        image=lambda: None if (manager := host.manager) is None else manager.image,
    )


def of_operator(host: OperatorHost) -> IntrudedHost:
    return IntrudedHost(host=host.name, image=lambda: host.image)
