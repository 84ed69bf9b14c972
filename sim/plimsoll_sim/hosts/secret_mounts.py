"""Mounts Secrets as kubelets do: a container gets the present content when it starts, and later
changes after a delay. Every former content of a broker's Secret is kept, for intruders.
"""

from __future__ import annotations

import random

from plimsoll_operator.api import labels
from plimsoll_operator.api_server.store import ObjectChange
from plimsoll_operator.kube.resources import SECRETS
from plimsoll_operator.manifests.listener_secrets import data_of
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.hosts.brokers import BrokerHost

LATE_US = (100_000, 3_000_000)
"""Shortest and longest delay with which a kubelet updates a mounted Secret, in virtual
microseconds. Real ones take a minute or two, too long for a run."""
Files = dict[str, bytes]


class SecretMounts:
    """The mounted Secrets of all brokers' machines."""

    def __init__(self, loop: SimLoop, rng: random.Random) -> None:
        self._loop = loop
        self._rng = rng
        self._brokers: dict[int, BrokerHost] = {}
        # The present content of each broker's Secret, and the content mounted on its machine.
        self._stored: dict[int, Files] = {}
        self._mounted: dict[str, Files] = {}
        # Machines with a kubelet that updates no Secret.
        self.held: set[int] = set()
        # Every content that held a key, the newest last.
        self.once: dict[int, list[Files]] = {}

    def add(self, brokers: dict[int, BrokerHost]) -> None:
        """Mount a Secret for each of these brokers from now on."""
        self._brokers = brokers
        for host in brokers.values():
            host.certificates = f"/secrets/{host.id}"

    def mounted(self, directory: str) -> Files:
        return self._mounted.get(directory, {})

    def stored(self, change: ObjectChange) -> None:
        """Schedule the update of mounts if the change writes a broker's Secret. Called for each
        change of the API server's store."""
        meta = change.after.body["metadata"]
        number = (meta.get("labels") or {}).get(labels.BROKER_ID)
        if change.resource.kind != SECRETS or number is None:
            return
        broker_id = int(number)
        files = {} if change.type == "DELETED" else data_of(change.after.body)
        if files == self._stored.get(broker_id):
            return
        self._stored[broker_id] = files
        if files:
            self.once.setdefault(broker_id, []).append(files)
        self._loop.later(self._rng.randint(*LATE_US), lambda: self._mount(broker_id, files))

    def release(self, broker_id: int) -> None:
        """Let the kubelet of a machine that was held back update its Secret again."""
        self.held.discard(broker_id)
        if broker_id in self._stored:
            self._mount(broker_id, self._stored[broker_id])

    def started(self, host: BrokerHost) -> None:
        """Mount the present content of the Secret, because the host's container starts."""
        if host.certificates is not None:
            self._mounted[host.certificates] = self._stored.get(host.id, {})

    def _mount(self, broker_id: int, files: Files) -> None:
        host = self._brokers[broker_id]
        reached = broker_id not in self.held and not host.powered_off
        newest = self._stored.get(broker_id) is files
        if host.certificates is not None and reached and newest:
            self._mounted[host.certificates] = files
