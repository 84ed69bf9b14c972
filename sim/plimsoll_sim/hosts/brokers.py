"""A simulated machine with a broker: its volume outlives its processes."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple
from uuid import UUID

from plimsoll_broker.config import Address, BrokerConfig
from plimsoll_broker.node.broker import BrokerNode, BrokerState
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.engine.process import Process
from plimsoll_sim.environment.network import Network
from plimsoll_sim.environment.simulated_disk import MOUNT, PowerCut, SimDisk, Volume

KAFKA_PORT = 9092
REPLICATION_PORT = 9091
CONTROLLER_PORT = 9093
CONTROLLERS = "controllers"
DATA = f"/{MOUNT}"


class BrokerEnvironment(NamedTuple):
    """Parts of the world that a broker's machine uses."""

    loop: SimLoop
    network: Network
    rng: random.Random
    """Random generator from which each machine draws a seed for its own."""


class BrokerHost:
    """A broker's machine. The simulated kubelet (`nodes`) assigns a pod to it; the pod's container
    may start and end many times. `node`: the broker in the present process, None if none runs."""

    def __init__(
        self,
        broker_id: int,
        cluster_id: UUID,
        configs: dict[str, str | int | bool],
        around: BrokerEnvironment,
    ) -> None:
        self.id = broker_id
        self.name = f"broker-{broker_id}"
        self.cluster_id = cluster_id
        self.configs = configs
        self.rack: str | None = None
        self.on_controller_loss: Literal["KeepServing", "StopServing"] = "KeepServing"
        self.transactions = False
        self.takes_pushes: Literal["all", "some", "none"] = "all"
        # Where its Secret is mounted; None if traffic inside the cluster is in plaintext.
        self.certificates: str | None = None
        self._loop, self._network, rng = around
        # A file's time is that of the wall clock of the process that writes it.
        entropy = random.Random(rng.getrandbits(64))
        self.volume = Volume(entropy, lambda: time.time_ns() // 1_000)
        self.process: Process | None = None
        self.node: BrokerNode | None = None
        # The number of pods it was given.
        self.lives = 0
        # How often the container of the present pod was restarted.
        self.restarts = 0
        # True if the present process may be unable to serve all its logs, and the next one can.
        self.needs_restart = False
        # True if files were removed, and no process that may have found that was restarted after
        # it had opened the logs.
        self.damaged = False
        # The uid of the pod that it runs, None: it was given none.
        self.pod_uid: str | None = None
        # The tag of the pod's image, and the revision that the pod names.
        self.tag = self.revision = ""
        # True while its pod is being deleted.
        self.going = False
        self._claim_uid = ""

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def crashed(self) -> bool:
        """Return True if the pod's container has ended although it did not end by itself."""
        process = self.process
        return process is not None and not process.alive and not process.exited

    @contextmanager
    def as_if_alive(self) -> Iterator[None]:
        """Treat a dead process as alive within the context, for a checker that reads the state with
        which it died."""
        assert self.process is not None
        self.process.alive = True
        try:
            yield
        finally:
            self.process.alive = False

    @property
    def manager(self) -> ReplicaManager | None:
        """Return the manager of the broker's replicas, None before the logs are loaded and after
        the process has ended."""
        process, node = self.process, self.node
        if process is None or not process.alive or node is None:
            return None
        serving = node._serving
        return serving.data.manager if serving is not None and serving.loaded else None

    def hosted(self, key: PartitionKey) -> Hosted | None:
        """Return the replica of a partition; None if there is no manager or it does not host it."""
        manager = self.manager
        return None if manager is None else manager.by_key(*key)

    @property
    def serving(self) -> bool:
        """Return True if the broker considers itself unfenced and serves clients."""
        return self.running and self.node is not None and self.node.state is BrokerState.RUNNING

    @property
    def epoch(self) -> int | None:
        """Return the broker epoch of this lifetime; None if it has not registered."""
        if not self.running or self.node is None or self.node._epoch is None:
            return None
        return int(self.node._epoch)

    @property
    def powered_off(self) -> bool:
        """Return True if the machine is off, including its kubelet."""
        return self.name in self._network.dark

    def power_on(self) -> None:
        self._network.light(self.name)

    def mount(self, claim_uid: str) -> None:
        """Mount the volume of a claim. If it is another claim than before, the volume is empty."""
        if self._claim_uid not in ("", claim_uid):
            self.volume.empty()
        self._claim_uid = claim_uid

    def give(self, pod_uid: str, tag: str) -> None:
        """Assign another pod to the machine. Its container does not run yet."""
        self.lives += 1
        self.pod_uid, self.tag, self.going = pod_uid, tag, False
        self.process, self.node, self.restarts = None, None, -1

    def take(self) -> None:
        """Remove the pod from the machine after its end."""
        self.pod_uid, self.going = None, False

    def start(self) -> Process:
        """Start the container of the machine's pod, and return its process."""
        assert not self.running
        self.restarts += 1
        self.needs_restart = self.volume.broken or self.damaged
        number = f"{self.lives}.{self.restarts}" if self.restarts else f"{self.lives}"
        in_turn = (self.id + self.lives + self.restarts) % 2 == 0
        takes_pushes = {"all": True, "some": in_turn, "none": False}[self.takes_pushes]
        process = Process(self._loop, f"{self.name}#{number}", self.name)
        process.at_death.append(lambda: self._network.process_died(process))
        config = BrokerConfig(
            cluster_id=self.cluster_id,
            broker_id=self.id,
            data_dir=DATA,
            listen=Address(host=self.name, port=KAFKA_PORT),
            advertised=Address(host=self.name, port=KAFKA_PORT),
            replication=Address(host=self.name, port=REPLICATION_PORT),
            controllers=(f"{CONTROLLERS}:{CONTROLLER_PORT}",),
            rack=self.rack,
            pod_uid=self.pod_uid,
            revision=self.revision,
            configs={"replica.takes.pushes": str(takes_pushes).lower(), **self.configs},
            on_controller_loss=self.on_controller_loss,
            certificates=self.certificates,
            transactions=self.transactions,
        )

        async def main() -> None:
            self.node = BrokerNode(config, SimDisk(self.volume, process))
            await self.node.run()

        self.process, self.node = process, None
        process.start(main())
        return process

    def kill(self) -> None:
        """Send SIGKILL to the broker's process. The page cache survives."""
        if self.process is not None:
            self.process.die()

    def lose_power(self, cut: PowerCut | None = None) -> None:
        """Cut the power: the process ends, and what was not durable is lost as `cut` decides. Peers
        are not notified."""
        self._network.dark.add(self.name)
        self.kill()
        self.volume.lose_power(cut)

    def stop(self) -> None:
        """Send SIGTERM to the broker's process."""
        if self.running and self.node is not None and self.process is not None:
            self.process.call(self.node.stop)
