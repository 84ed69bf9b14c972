"""The cluster of a scenario: a world without random choices, the scripted clients, and the clock.

The commands of a scenario act on it. Every step goes through `World.step`, so all safety predicates
are checked after each step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack
from typing import Any
from uuid import UUID

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.ids import BrokerId, TopicPartition
from plimsoll_operator.api_server.store import Backup
from plimsoll_sim.cluster.run_options import RunOptions
from plimsoll_sim.cluster.world import TOPIC, NotAlive, World
from plimsoll_sim.environment.simulated_disk import Folder
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.hosts.client_calls import ClientConnection
from plimsoll_sim.hosts.group_members import Fellows
from plimsoll_sim.hosts.intruder import Loot
from plimsoll_sim.hosts.operators import OperatorHost
from plimsoll_sim.hosts.tenants import Tenant
from plimsoll_sim.runs.run import alone
from plimsoll_sim.scenario.fixed_randomness import Dice
from plimsoll_sim.scenario.held_messages import Taps
from plimsoll_sim.scenario.script import BadScript, whole
from plimsoll_sim.scenario.scripted_clients import Actor, Instance, SentBatch

WAIT_US = 120_000_000
WAIT_STEPS_MAX = 20_000
"""Maximum number of steps of a wait. A wait that exceeds this limit or the limit in time fails the
scenario."""
CONTROLLER = "controller"
CLIENT = "client"


class Stage:
    """The cluster of a scenario. A context manager; `begin` builds the cluster."""

    def __init__(self, *, logs: bool = False) -> None:
        self._logs = logs
        self._stack = ExitStack()
        self._world: World | None = None
        self._taps: Taps | None = None
        # Members of groups that live by themselves, by group.
        self.fellows: dict[str, Fellows] = {}
        self.actors: dict[str, Actor] = {}
        self.batches: dict[str, SentBatch] = {}
        # Transactional producers, by client.
        self.instances: dict[str, Instance] = {}
        self.backups: dict[int, Folder] = {}
        self.etcd_backup: Backup | None = None
        # Earlier objects of the metadata's backup.
        self.bucket: dict[str, bytes] = {}
        # Credentials of intruders, by the name that the scenario gave them.
        self.stolen: dict[str, Loot] = {}
        # Users, their connections by user and host, and what they asked and did not wait for.
        self.tenants: dict[str, Tenant] = {}
        self.sessions: dict[tuple[str, str], ClientConnection] = {}
        self.pending: list[asyncio.Task[list[str]]] = []
        self.changes_shown = 0

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        # These would keep alive what is collected with the world.
        self.actors.clear()
        self.tenants.clear()
        self.sessions.clear()
        self.pending.clear()
        self.batches.clear()
        self.instances.clear()
        self._taps = None
        self._stack.close()

    def begin(self, options: RunOptions) -> None:
        if self._world is not None:
            raise BadScript("there is a cluster already")
        self._world = World(0, options, Dice)
        self._taps = Taps(self._world.network, self.named)
        self._stack.enter_context(alone(self._world, logs=self._logs))

    @property
    def world(self) -> World:
        if self._world is None:
            raise BadScript("begin with `cluster`")
        return self._world

    @property
    def taps(self) -> Taps:
        assert self.world is not None
        assert self._taps is not None
        return self._taps

    @property
    def steps(self) -> int:
        return 0 if self._world is None else self._world.loop.steps

    def note(self, text: str) -> None:
        if self._world is not None:
            self._world.note(text)

    @property
    def events(self) -> list[str]:
        return [] if self._world is None else self._world.events

    # --- time -------------------------------------------------------------------------------------

    def step(self) -> None:
        self.world.step()
        for actor in self.actors.values():
            actor.raise_violation()

    def run(self, us: int) -> None:
        """Run all events of the next `us` virtual microseconds."""
        loop = self.world.loop
        end = loop.now_us + us
        while (next_us := loop.next_us()) is not None and next_us <= end:
            self.step()

    def until(self, condition: Callable[[], bool], what: str, us_max: int = WAIT_US) -> None:
        """Run steps until the condition is true. Fails after `us_max` virtual microseconds. `what`:
        the condition, for the error."""
        end = self.world.loop.now_us + us_max
        last = self.world.loop.steps + WAIT_STEPS_MAX
        while not condition():
            if self.world.loop.now_us > end:
                raise NotAlive(f"not within {us_max // 1_000_000} s: {what}")
            if self.world.loop.steps > last:
                raise NotAlive(f"not within {WAIT_STEPS_MAX} steps: {what}")
            self.step()

    def waited(self, condition: Callable[[], bool], us_max: int) -> bool:
        """Run steps until the condition is true. Return False if it is not true after `us_max`
        virtual microseconds."""
        end = self.world.loop.now_us + us_max
        while not condition() and self.world.loop.now_us <= end:
            self.step()
        return condition()

    # --- lookups
    # ----------------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """Return the committed metadata."""
        return self.world.ghost.image

    def broker(self, name: str) -> BrokerHost:
        found = self.world.brokers.get(whole(name))
        if found is None:
            raise BadScript(f"there is no broker {name}")
        return found

    def hosts(self, names: str) -> list[str]:
        """Return the hosts that a command names, such as `1,2,controller,client`."""
        found: list[str] = []
        for name in names.split(","):
            if name == CONTROLLER:
                found += [operator.name for operator in self.world.operators]
            elif name.isdecimal():
                found.append(self.broker(name).name)
            else:
                found.append(name)
        return found

    def operator(self, number: str) -> OperatorHost:
        """Return the operator with this number; if the number is empty, the leading one."""
        operators = self.world.operators
        if number:
            return operators[whole(number)]
        active = [operator for operator in operators if operator.active]
        if not active:
            raise BadScript("no operator leads now; name one")
        return active[0]

    def at(self, name: str) -> TopicPartition:
        """Return the partition that a command names, such as `orders-0`."""
        topic, _, index = (name or f"{TOPIC}-0").rpartition("-")
        return TopicPartition(topic, whole(index))

    def key(self, at: TopicPartition) -> PartitionKey | None:
        topic_id = self.image.topic_ids.get(at.topic)
        return None if topic_id is None else PartitionKey(topic_id, at.partition)

    def partition(self, at: TopicPartition) -> Partition:
        """Return the committed state of a partition."""
        key = self.key(at)
        found = None if key is None else self.image.partitions.get(key)
        if found is None:
            raise BadScript(f"there is no partition {at}")
        return found

    def named(self, topic_id: UUID, index: int) -> str:
        """Return the name of the partition with this topic id and index."""
        topic = self.image.topics.get(topic_id)
        return f"{'an unknown topic' if topic is None else topic.name}-{index}"

    def leader(self, at: TopicPartition) -> str:
        """Return the host of the committed leader."""
        leader = self.partition(at).leader
        if leader is None:
            raise BadScript(f"{at} has no leader; name a broker")
        return self.world.brokers[int(leader)].name

    def everybody_knows(self) -> bool:
        """Return True if every broker has applied all that is committed."""
        return all(
            host.manager is not None and host.manager.image == self.image
            for host in self.world.brokers.values()
            if host.running
        )

    def takes_part(self, host: BrokerHost) -> bool:
        """Return True if the broker's present process is unfenced and knows that."""
        broker = self.image.brokers.get(BrokerId(host.id))
        registered = broker is not None and broker.broker_epoch == host.epoch
        return host.serving and registered and broker is not None and not broker.fenced

    # --- clients ----------------------------------------------------------------------------------

    def actor(self, name: str) -> Actor:
        found = self.actors.get(name)
        if found is None:
            found = self.actors[name] = Actor(name, self.world)
        return found

    def ask(self, actor: Actor, work: Coroutine[Any, Any, list[str]], us_max: int) -> list[str]:
        """Run a client's request. Return its result, or "no answer" after `us_max` virtual
        microseconds."""
        task: asyncio.Task[list[str]] = actor.begin(work)
        if not self.waited(task.done, us_max):
            task.cancel()
            return ["no answer"]
        return task.result()

    def batch(self, name: str) -> SentBatch:
        found = self.batches.get(name)
        if found is None:
            raise BadScript(f"no batch {name} was sent")
        return found

    def answers(self, batches: Iterable[SentBatch]) -> list[str]:
        return [batch.told() for batch in batches]
