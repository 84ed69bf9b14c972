"""A simulated machine with a broker on it: its volume stays, its processes come and go."""

from __future__ import annotations

import random
import time
from typing import Literal, NamedTuple
from uuid import UUID

from plimsoll_broker.config import Address, BrokerConfig
from plimsoll_broker.node.broker import BrokerNode, BrokerState
from plimsoll_broker.replication.hosted_partition import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.engine.process import Process
from plimsoll_sim.environment.disk import MOUNT, SimDisk, Volume
from plimsoll_sim.environment.files import PowerCut
from plimsoll_sim.environment.network import Network

KAFKA_PORT = 9092
REPLICATION_PORT = 9091
CONTROLLER_PORT = 9093
CONTROLLERS = "controllers"
DATA = f"/{MOUNT}"


class BrokerEnvironment(NamedTuple):
    """What every broker's machine finds around it."""

    loop: SimLoop
    network: Network
    rng: random.Random
    """Each machine draws a seed of its own from it."""


class BrokerHost:
    """`node` is the present process's broker, None while there is none.  `revision`: what its pod
    runs; `template`: what its next one will, and `template_version` how often that was written.
    `going`: its pod is being deleted; `stuck`: it cannot start what it should run.
    `removed`: its StatefulSet is gone, so nobody starts it."""

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
        self._loop, self._network, rng = around
        # A file's time is that of the wall clock of whoever writes it.
        entropy = random.Random(rng.getrandbits(64))
        self.volume = Volume(entropy, lambda: time.time_ns() // 1_000)
        self.process: Process | None = None
        self.node: BrokerNode | None = None
        self.lives = 0
        self.needs_restart = False
        self.revision = self.template = ""
        self.template_version = 0
        self.going = self.stuck = False
        self.removed = False
        self.removed_us = 0

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def manager(self) -> ReplicaManager | None:
        """Who hosts the partitions, from when the logs are loaded until the process ends."""
        if not self.running or self.node is None:
            return None
        serving = self.node._serving
        return serving.data.manager if serving is not None and serving.loaded else None

    def hosted(self, key: PartitionKey) -> Hosted | None:
        """Its replica of a partition, while there is a manager that has it."""
        manager = self.manager
        return None if manager is None else manager.by_key(*key)

    @property
    def serving(self) -> bool:
        """Unfenced, as far as it knows, and taking part."""
        return self.running and self.node is not None and self.node.state is BrokerState.RUNNING

    @property
    def epoch(self) -> int | None:
        """This lifetime's broker epoch."""
        if not self.running or self.node is None or self.node._epoch is None:
            return None
        return int(self.node._epoch)

    def pod_uid(self) -> str:
        return f"pod-{self.id}-{self.lives}"

    def renew(self) -> None:
        """Another pod, of the template as it is now."""
        self.lives += 1
        self.revision, self.going = self.template, False

    def start(self) -> Process:
        assert not self.running
        self.renew()
        self.needs_restart = self.volume.broken
        self._network.light(self.name)
        process = Process(self._loop, f"{self.name}#{self.lives}", self.name)
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
            pod_uid=self.pod_uid(),
            revision=self.revision,
            configs=self.configs,
            on_controller_loss=self.on_controller_loss,
        )

        async def main() -> None:
            self.node = BrokerNode(config, SimDisk(self.volume, process))
            await self.node.run()

        self.process, self.node = process, None
        process.start(main())
        return process

    def kill(self) -> None:
        """SIGKILL: the page cache survives."""
        if self.process is not None:
            self.process.die()

    def lose_power(self, cut: PowerCut | None = None) -> None:
        """The process ends and so does what was not on the disk; peers are not told."""
        self._network.dark.add(self.name)
        self.kill()
        self.volume.lose_power(cut)

    def stop(self) -> None:
        """SIGTERM."""
        if self.running and self.node is not None and self.process is not None:
            self.process.call(self.node.stop)
