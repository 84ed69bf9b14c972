"""A simulated cluster: operators, brokers, clients, their network, disks and API server.

`World` builds the cluster from options and a seed, runs it step by step, and calls the checkers
after every step. Faults are chosen elsewhere: by `faults`, or by a scenario.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from pathlib import Path
from uuid import UUID

from msgspec.structs import replace

from plimsoll_broker.node.broker import CannotStart
from plimsoll_broker.node.heartbeats import LifetimeOver
from plimsoll_broker.storage.disk import StorageError
from plimsoll_core.cluster.records import Record
from plimsoll_operator.api_server.store import ObjectChange
from plimsoll_operator.kube.resources import LOG_CLUSTERS, METADATA_BATCHES, TOPICS
from plimsoll_sim.checkers import compaction, restored_replicas, standstill
from plimsoll_sim.checkers.acked_and_read import ClientChecker
from plimsoll_sim.checkers.backups import BackupChecker
from plimsoll_sim.checkers.coordinated import CoordinatedChecker
from plimsoll_sim.checkers.groups import GroupChecker
from plimsoll_sim.checkers.liveness import is_finished, unfinished
from plimsoll_sim.checkers.log_starts import check_marker
from plimsoll_sim.checkers.replica_predicates import ReplicaChecker
from plimsoll_sim.checkers.shares import ShareChecker
from plimsoll_sim.checkers.staged_rolls import StageChecker
from plimsoll_sim.checkers.stale_serving import LeaseChecker
from plimsoll_sim.checkers.transactions import TransactionChecker
from plimsoll_sim.checkers.voluntary_hours import HourChecker
from plimsoll_sim.cluster.run_options import WAIT_STEPS_MAX as _MOST
from plimsoll_sim.cluster.run_options import Patience, RunOptions
from plimsoll_sim.cluster.run_parts import (
    Ordered,
    Witnesses,
    broker_hosts,
    clients_of,
    in_nobodys_name,
    operator_hosts,
    settings_of,
    writers_of,
)
from plimsoll_sim.cluster.secured import Secured
from plimsoll_sim.cluster.specs import BACKUP_LOGIN, cluster_spec, offsets_kept, topic_spec
from plimsoll_sim.desired import hours, rebalances, revisions
from plimsoll_sim.desired.objects import AppliedObjects
from plimsoll_sim.desired.rebalances import Approvals
from plimsoll_sim.engine.loop import Livelock, SimLoop
from plimsoll_sim.engine.process import Process
from plimsoll_sim.environment.api_server_faults import NAMESPACE, Weather, simulated_server
from plimsoll_sim.environment.network import Network
from plimsoll_sim.environment.send_buffers import bounded
from plimsoll_sim.environment.simulated_bucket import BackupBucket
from plimsoll_sim.hosts.brokers import CONTROLLERS, DATA, BrokerEnvironment, BrokerHost
from plimsoll_sim.hosts.clients import Client, Habits, Producer
from plimsoll_sim.hosts.group_members import GroupMember, MemberKind, kinds_of
from plimsoll_sim.hosts.nodes import Jobs, Nodes
from plimsoll_sim.hosts.operators import OperatorContext, OperatorHost
from plimsoll_sim.hosts.transaction_writers import TransactionWriter
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import PartitionGhost, Violation

CLUSTER_ID = UUID(int=0xC1)
TOPIC = "orders"
CLIENT_TOPIC = "asked-for"
"""Name of a topic that a client creates in some runs, and that no object declares."""
CLUSTER_NAME = "sim"
ORDER_US = 500_000
"""Virtual microseconds after which a client repeats its request."""
VISIT_US = 1_000_000
"""Virtual microseconds between a person's visits to a cluster that was healed."""
LOOKS = 64
"""Steps between two looks at whether the replicas of a restored history have converged."""
UP_US_MAX = 120_000_000
ENDINGS = (LifetimeOver, CannotStart, StorageError)
"""Errors with which a broker may end by itself; its container is then restarted."""


class Crash(Exception):
    """Raised if a process failed because of a bug of its own."""


class NotAlive(Exception):
    """Raised if an expected condition does not hold in time after everything was healed."""


class World:
    """A simulated cluster. `note`: records an event, for people and for the digest. `chance`: makes
    the sources of random choices, either seeded or biased."""

    def __init__(
        self, seed: int, options: RunOptions, chance: Callable[[int], random.Random] = random.Random
    ) -> None:
        rng = random.Random(seed)

        def stream() -> random.Random:
            return chance(rng.getrandbits(64))

        self.options = options
        self.rng = stream()
        self.entropy = random.Random(rng.getrandbits(64))
        self.loop = SimLoop(stream())  # type: ignore[abstract]  # uncalled methods are missing
        self.loop.slices_end = options.slices_end
        self.loop.slice_dice = random.Random(f"slices {seed}")
        network = Network(self.loop, stream(), options.latency_us)
        self.loop.network = self.network = bounded(network, options.send_buffers, seed)
        self.weather = Weather(latency_us=options.api_latency_us)
        self.api_server = simulated_server(self.loop, stream(), self.weather)
        self.etcd = self.api_server.store
        self.ghost = MetadataGhost(CLUSTER_ID, options.metadata_version)
        self.bucket = BackupBucket(random.Random(f"bucket {seed}")) if options.backup else None
        ghost, now_us = self.ghost, lambda: self.loop.now_us
        self.groups = GroupChecker(ghost, now_us, offsets_kept(options))
        self.replicas = ReplicaChecker(ghost, now_us, self._tempt, self.groups.written.check)
        self.leases = LeaseChecker(ghost, now_us)
        self.shares = ShareChecker(now_us, looks=bool(options.hoarders or options.tenants))
        self.witness = ClientChecker(self.ghost)
        self.transactions = TransactionChecker(self.ghost)
        self.coordinated = CoordinatedChecker(self.ghost)
        self.ghost.tell_ended = self.coordinated.ended if options.coordinated else None
        self.objects = AppliedObjects(self.api_server, NAMESPACE, CLUSTER_NAME)
        self.hours = HourChecker(self.objects, self._accuse)
        self.backups = BackupChecker(CLUSTER_ID, self.ghost, self.objects, self._accuse)
        if self.bucket is not None:
            self.bucket.wrote = self.backups.wrote
        self.stages = StageChecker(self.objects, lambda: self.nodes.tags, self._accuse)
        self.etcd.observers.append(self._stored)
        around = BrokerEnvironment(self.loop, self.network, stream())
        self.brokers = broker_hosts(options, CLUSTER_ID, around)
        self.secured = self._secured(seed)
        self.nodes = Nodes(self.loop, self.rng, self.api_server, self.weather, self.brokers)
        self.nodes.started, self.nodes.note = self._started, self.note
        self.jobs = Jobs(self.loop, self.rng, self.api_server)
        self.approvals = Approvals(self.loop, self.api_server, self.objects)
        self.operators = operator_hosts(options, self._operator_context(stream()))
        self.hours.operators = self.operators
        self.ghost.is_declared = self.objects.is_declared
        self.ghost.applied = self._applied
        self.ghost.strict_slices = options.slice_partitions_max > 10
        self.network.names[CONTROLLERS] = [host.name for host in self.operators]
        self.clients: list[Client] = []
        self.writers: list[TransactionWriter] = []
        self.client_processes: list[Process] = []
        self.stop_clients = False
        self.counts: Counter[str] = Counter()
        self.expect_liveness = True
        # True once a history that a person chose leads, although the committed one was lost.
        self.expect_restored = False
        self.tempting: list[Callable[[], None]] = []
        self.events: list[str] = []
        self.digest = 0
        self._client_rng = stream()
        self._hosts: dict[Process, BrokerHost] = {}
        self._restarting: set[str] = set()
        self._checked_image = self.ghost.image
        # True if whatever ends by itself is started again.
        self.healed = False
        self._violation: Violation | None = None

    # --- building ---------------------------------------------------------------------------------

    def _secured(self, seed: int) -> Secured | None:
        """Build the parts for certificates and logins. They draw from a random generator of their
        own, so that all other draws stay the same."""
        if not self.options.inside and not self.options.tenants:
            return None
        return Secured(self, random.Random(f"secured {seed}"))

    def _applied(self) -> dict[int, int]:
        """Return the metadata offset that each running broker has applied."""
        images = {host.id: host.manager.image for host in self.brokers.values() if host.manager}
        return {b: int(image.next_offset) for b, image in images.items() if image is not None}

    def _operator_context(self, rng: random.Random) -> OperatorContext:
        return OperatorContext(
            loop=self.loop,
            network=self.network,
            server=self.api_server,
            weather=self.weather,
            rng=rng,
            settings=settings_of(self.options),
            slots=self.options.slots,
            asks_brokers=self.options.inside,
            bucket=self.bucket,
        )

    def declare(self, name: str = TOPIC, **changes: object) -> None:
        """Create or change a Topic. `changes`: fields of its spec."""
        if name in self.objects.names(TOPICS):
            self.objects.edit(TOPICS, name, **changes)
        else:
            spec = topic_spec(CLUSTER_NAME, self.options)
            self.objects.create(TOPICS, name, replace(spec, **changes))

    def delete(self, name: str = TOPIC) -> None:
        if name in self.objects.names(TOPICS):
            self.objects.delete(TOPICS, name)

    def order(self, request: Ordered) -> None:
        """Send a client's request to the controller: the next active one gets it."""
        request = in_nobodys_name(request, self.options)
        if not any(host.pass_on(request) for host in self.operators):
            self.later(ORDER_US, lambda: self.order(request))

    # --- processes --------------------------------------------------------------------------------

    def start_broker(self, host: BrokerHost) -> None:
        self.nodes.start_container(host)

    def _started(self, host: BrokerHost) -> None:
        assert host.process is not None
        self._hosts[host.process] = host
        if self.secured is not None:
            self.secured.mounts.started(host)

    def start_operator(self, host: OperatorHost) -> None:
        if not host.running:
            host.start()

    def start_all(self) -> None:
        """Apply the LogCluster and start its operators, which create the brokers."""
        spec = cluster_spec(self.options, CLUSTER_ID)
        if self.bucket is not None:
            self.objects.put_secret(BACKUP_LOGIN, {})
        self.objects.create(LOG_CLUSTERS, CLUSTER_NAME, spec)
        for operator in self.operators:
            self.start_operator(operator)

    def start_clients(self) -> None:
        told = Witnesses(*(self.witness, self.groups, self.transactions, self.coordinated))
        for client in clients_of(self.options, self._habits("", TOPIC), self._stream, told):
            self._start_client(client)
        if self.secured is not None:
            self.client_processes += self.secured.begin(lambda: self.stop_clients)
        for number, kinds in enumerate(self.options.members):
            for name, kind in kinds_of(number, kinds):
                self.start_member(name, kind)
        habits = self._habits("", TOPIC)
        self.writers = writers_of(self.options, habits, self.loop, self.brokers, self._stream)
        for writer in self.writers:
            writer.begin()

    def _habits(self, name: str, topic: str) -> Habits:
        return Habits(
            name=name, topic=topic, partition=0, think_ms=self.options.think_ms,
            hosts=tuple(host.name for host in self.brokers.values()),
            stopped=lambda: self.stop_clients,
        )  # fmt: skip

    def start_member(self, name: str, kind: MemberKind) -> GroupMember:
        """Start a member of a group. Its process runs until the world stops its clients."""
        generations = self.groups.generations
        habits = self._habits(name, TOPIC)
        member = GroupMember(habits, self._stream(), self.witness, kind, generations)
        self._start_client(member)
        return member

    def start_client_topic_producer(self) -> None:
        """Start the producer of the client-created topic, if it is not running. It retries until
        the topic exists."""
        name = f"producer-of-{CLIENT_TOPIC}"
        if any(client.habits.name == name for client in self.clients):
            return
        habits = self._habits(name, CLIENT_TOPIC)
        self._start_client(Producer(habits, self._stream(), self.witness))

    def _stream(self) -> random.Random:
        return random.Random(self._client_rng.getrandbits(64))

    def _start_client(self, client: Client) -> None:
        process = Process(self.loop, client.habits.name, client.habits.name)
        process.start(client.forever())
        self.clients.append(client)
        self.client_processes.append(process)

    # --- running ----------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        line = f"{self.loop.now_us / 1_000_000:12.6f}  {text}"
        self.events.append(line)
        self.digest = zlib.crc32(line.encode(), self.digest)

    def step(self) -> None:
        """Run one event and all that follows from it at once, then the checks. Raises Violation,
        Crash or Livelock."""
        loop = self.loop
        if not loop.step():
            raise Livelock("nothing will ever happen again")
        touched = tuple(loop.touched)
        names = ",".join(map(attrgetter("name"), touched))
        self.digest = zlib.crc32(f"{loop.now_us} {names}".encode(), self.digest)
        for process in touched:
            host = self._hosts.get(process)
            if host is not None and host.process is process:
                self._look(host)
            if process.exited:
                self._ended(process)
        if self._violation is not None:
            raise self._violation
        if loop.crashes:
            culprit, error, message = loop.crashes[0]
            raise Crash(f"{culprit}: {message}: {error!r}") from error
        if self.ghost.image is not self._checked_image:
            self._checked_image = self.ghost.image
            self.replicas.committed_moved(self.brokers)

    def _look(self, host: BrokerHost) -> None:
        """Run all checks of a broker after a step in which the broker ran."""
        if self.ghost.keepers:
            self.replicas.look_at_metadata(host)
            return
        self.replicas.look(host)
        self.leases.look(host)
        self.groups.look(host)
        if self.options.coordinated:
            self.coordinated.look(host)
        self.shares.look(host)
        if not self.loop.behind:
            standstill.look(self.network, host)
        if self.secured is not None:
            self.secured.look(host)

    def _ended(self, process: Process) -> None:
        """Handle a process that ended by itself: restart it, or raise Crash if a bug ended it."""
        process.exited = False
        host = self._hosts.get(process)
        if host is not None:
            if process.ended is not None and not isinstance(process.ended, ENDINGS):
                raise Crash(f"{process} ended: {process.ended!r}") from process.ended
            self.note(f"{process} ended: {process.ended!r}")
            check_marker(host.name, host.volume, Path(DATA))
            if host.process is process and (process.ended is not None or self.healed):
                self.nodes.start_soon(host)
            return
        if process.ended is not None:
            raise Crash(f"{process} ended: {process.ended!r}") from process.ended
        if self.healed:
            for operator in self.operators:
                self.start_operator(operator)

    def later(self, us: int, action: Callable[[], object]) -> None:
        """Run an action after `us` virtual microseconds. It belongs to the world and not to a
        process, so it runs even if every process has ended."""
        self.loop.later(us, action)

    def _tempt(self) -> None:
        """Perhaps strike with a fault, because a proposal or a commit has just happened."""
        for hook in self.tempting:
            hook()

    def _stored(self, change: ObjectChange) -> None:
        if change.type == "DELETED":
            return
        before = len(self.ghost.history)
        try:
            self.ghost.stored(change.resource.kind.plural, change.after.body)
            if self.bucket is not None and change.resource.kind == METADATA_BATCHES:
                self.backups.stored(change.after.body.get("spec", {}))
            if self.secured is not None:
                self.secured.stored(change, before)
        except Violation as violation:
            # The caller that wrote the object must not catch it.
            self._accuse(violation)
        for record in self.ghost.history[before:]:
            self.note(f"committed {short(record)}")
            self._tempt()

    def _accuse(self, violation: Violation) -> None:
        """Raise the violation at the end of the step: its finder must not be stopped by it."""
        self._violation = self._violation or violation

    def until(self, so: Callable[[], bool], us_max: int, what: str, steps_max: int = _MOST) -> None:
        """Run steps until the condition `so` holds. Raises NotAlive if that takes longer than
        `us_max` virtual microseconds, or more than `steps_max` steps. `what`: the condition, for
        the error."""
        deadline, n = self.loop.now_us + us_max, 0
        while True:
            n += 1
            if n % 16 == 1 and so():
                return
            if self.loop.now_us > deadline or n > steps_max:
                raise NotAlive(f"{what}: {'; '.join(unfinished(self)) or 'still not so'}")
            self.step()

    def stable(self, ghost: PartitionGhost) -> int | None:
        """Return the last stable offset of the partition's leader; None if it has none here."""
        leader = self.ghost.image.partitions[ghost.key].leader
        hosted = None if leader is None else self.brokers[int(leader)].hosted(ghost.key)
        return None if hosted is None else hosted.replica.last_stable_offset

    # --- healing ----------------------------------------------------------------------------------

    def heal(self) -> None:
        """End every fault and start every process again."""
        self.note("healing")
        revisions.correct(self.objects)
        hours.reset(self.objects)
        self.healed = True
        self.network.heal_all()
        self.loop.slow_io.clear()
        self.loop.slices_end = 0.0
        self.weather.calm()
        if self.bucket is not None:
            self.bucket.heal()
        for operator in self.operators:
            if operator.process is not None:
                operator.process.resume()
                operator.process.wall_offset_ms = 0
            self.start_operator(operator)
        for process in self.client_processes:
            process.resume()
        for broker in self.brokers.values():
            broker.volume.heal()
            if broker.process is not None:
                broker.process.wall_offset_ms = 0
                broker.process.resume()
            if broker.needs_restart:
                broker.kill()
            self.start_broker(broker)
        rebalances.heal(self.objects, self.options.factor_max)
        self._follow_advice()

    def _follow_advice(self) -> None:
        """Do what log lines and statuses ask a person to do, now and from time to time. Restart
        each broker that found damaged files when its process started, which may be after healing.
        Raise the partitions of each Topic that an older etcd has brought back with fewer."""
        if not self.healed:
            return
        for broker in self.brokers.values():
            if broker.needs_restart and broker.serving:
                broker.damaged = False
                broker.kill()
                self.start_broker(broker)
        self.objects.raise_partitions(self.ghost.image)
        self.loop.later(VISIT_US, self._follow_advice)

    def settle(self, patience: Patience) -> None:
        """Heal everything, let clients end, and wait until the cluster has converged."""
        self.heal()
        self.stop_clients = True
        if self.expect_liveness and not self.ghost.restored:
            healed = partial(is_finished, self)
            self.until(healed, patience.us_max, "after healing", patience.steps_max)
            compaction.check_agreement(self.ghost, self.brokers)
        elif self.expect_restored:
            self._settle_restored(patience)

    def _settle_restored(self, patience: Patience) -> None:
        """Wait until the cluster has converged to the history that a person chose, and check its
        replicas."""
        deadline, n = self.loop.now_us + patience.us_max, 0
        while left := restored_replicas.unsettled(self):
            if self.loop.now_us > deadline or n > patience.steps_max:
                raise NotAlive(f"after a restore that a person chose: {'; '.join(left)}")
            for _ in range(LOOKS):
                self.step()
            n += LOOKS
        restored_replicas.check_agreement(self)
        self.note("story: the replicas of the chosen history agree")

    def end(self) -> None:
        """End all processes and drop all references."""
        for process in [*self._hosts, *self.client_processes]:
            process.die()
        for operator in self.operators:
            operator.kill()
        self.loop.close()
        self.__dict__.clear()


__all__ = ["Crash", "NotAlive", "Violation", "World"]


def short(record: Record) -> str:
    fields = {
        name: getattr(record, name)
        for name in record.__struct_fields__
        if name not in ("directory_ids", "endpoints", "incarnation_id", "pod_uid")
    }
    shown = ", ".join(f"{name}={value!r}" for name, value in fields.items() if value != "UNSET")
    return f"{type(record).__name__}({shown})"
