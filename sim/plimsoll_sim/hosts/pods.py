"""Brokers' pods: as much of StatefulSets and of a kubelet as operators and brokers can see.

The world starts pods through it, operators delete them and make and remove their StatefulSets.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId
from plimsoll_sim.desired import revisions
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.hosts.brokers import BrokerHost

GRACE_US = 40_000_000
"""How long a pod may take to stop before it is killed."""
RESTART_US = (500_000, 6_000_000)
"""How long it takes until a container that ended is started again, at least and at most."""


class Pods:
    """One pod for each broker that has a StatefulSet."""

    def __init__(
        self,
        loop: SimLoop,
        rng: random.Random,
        note: Callable[[str], None],
        started: Callable[[BrokerHost], None],
    ) -> None:
        self._loop = loop
        self._rng = rng
        self._note = note
        # Called with each broker whose process has been started.
        self._started = started

    def start(self, host: BrokerHost) -> None:
        """Start a pod of the template as it is, unless there is one or there should be none."""
        if host.running or host.stuck or host.removed:
            return
        if revisions.starts(host.template):
            host.start()
            self._started(host)
        else:
            host.renew()
            host.stuck = True

    def restart_soon(self, host: BrokerHost) -> None:
        self._loop.later(self._rng.randint(*RESTART_US), lambda: self.start(host))

    def delete(self, host: BrokerHost, pod_uid: str) -> None:
        """SIGTERM, SIGKILL after the grace; then its StatefulSet makes another one."""
        if host.pod_uid() != pod_uid or host.going:
            return
        self._note(f"{pod_uid} is deleted")
        if not host.running or host.process is None:
            host.stuck = False
            self.restart_soon(host)
            return
        process = host.process
        host.going = True
        process.at_death.append(lambda: self.restart_soon(host))
        host.stop()
        self._loop.later(GRACE_US, process.die)

    def reconcile(self, image: ClusterImage, hosts: dict[int, BrokerHost], revision: str) -> None:
        """Members, and brokers that hold replicas, have a StatefulSet; others lose it: they are
        stopped, then killed.  `revision` is that of new StatefulSets."""
        if not image.members:
            return
        for host in hosts.values():
            broker_id = BrokerId(host.id)
            if broker_id in image.members or image.hosted.get(broker_id):
                if host.removed:
                    host.removed = False
                    host.template, host.template_version = revision, host.template_version + 1
                    self.start(host)
                continue
            if not host.removed:
                host.removed, host.removed_us, host.stuck = True, self._loop.now_us, False
            if self._loop.now_us - host.removed_us > GRACE_US:
                host.kill()
            else:
                host.stop()
