"""Where a local cluster keeps what in its directory, and what it remembers between runs.

Ports are picked once and kept, so that clients find a restarted cluster where it
was.  Called by `cluster`; decides nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import yaml

from plimsoll_operator.local.ports import HeldPorts, Ports
from plimsoll_operator.metalog.directory_files import write_whole

PORT_MAX = 65_535


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """`cluster.json`."""

    cluster_id: UUID
    controller_port: int
    brokers: dict[int, Ports]
    api_port: int = 0
    """0: none was picked yet, by an earlier version."""


class BadDirectory(Exception):
    """The directory cannot be used; a sentence for the user."""


class DirectoryLayout:
    """The directory of one local cluster."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def metadata(self) -> Path:
        return self.root / "metadata"

    @property
    def history(self) -> Path:
        """What became of leaders and ISRs, when the metadata log has gone on."""
        return self.root / "history"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def operator_log(self) -> Path:
        return self.logs / "operator.log"

    def data(self, broker_id: int) -> Path:
        return self.root / f"broker-{broker_id}"

    def broker_log(self, broker_id: int) -> Path:
        return self.logs / f"broker-{broker_id}.log"

    def broker_config(self, broker_id: int) -> Path:
        return self.root / f"broker-{broker_id}.json"

    def pod(self, name: str) -> Path:
        """The volumes of a driver's pod, while it runs."""
        return self.root / "pods" / name

    def pod_log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    @property
    def pki(self) -> Path:
        """Certificates and keys; readable by nobody else."""
        return self.root / "pki"

    def broker_pki(self, broker_id: int) -> Path:
        """What a broker's listeners show."""
        return self.pki / f"broker-{broker_id}"

    @property
    def listener_authority(self) -> Path:
        """What clients of listeners with TLS trust."""
        return self.pki / "listener-ca.crt"

    @property
    def objects(self) -> Path:
        """What the API server in memory holds, as of the last change: Secrets, too."""
        return self.root / "objects.json"

    @property
    def users(self) -> Path:
        """A directory for each user, with its login."""
        return self.root / "users"

    @property
    def kubeconfig(self) -> Path:
        """For `kubectl`: where the API server is."""
        return self.root / "kubeconfig"

    def prepare(self) -> None:
        """A directory that is made here is for its owner alone: records and Secrets lie in it."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.logs.mkdir(exist_ok=True)
            self.history.mkdir(exist_ok=True)
        except OSError as error:
            raise BadDirectory(
                f"{self.root} cannot be this cluster's directory: {error.strerror}."
            ) from error

    def remembered(self) -> Remembered | None:
        """What an earlier run left."""
        path = self.root / "cluster.json"
        if not path.exists():
            return None
        try:
            return msgspec.json.decode(path.read_bytes(), type=Remembered)
        except msgspec.DecodeError as error:
            raise BadDirectory(f"{path} is not a local cluster's: {error}") from error

    def remember(self, remembered: Remembered) -> None:
        write_whole(self.root / "cluster.json", msgspec.json.encode(remembered))

    def show_api(self, url: str, namespace: str) -> None:
        """Write the kubeconfig file; `namespace` is the one that `kubectl` looks into."""
        name = "plimsoll-local"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": url}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [
                {
                    "name": name,
                    "context": {"cluster": name, "user": name, "namespace": namespace},
                }
            ],
            "current-context": name,
        }
        write_whole(self.kubeconfig, yaml.safe_dump(config, sort_keys=False).encode())

    def show_pids(self, pids: dict[str, int]) -> None:
        """`pids.json`: who runs now; brokers get new ones when they are restarted."""
        write_whole(self.root / "pids.json", json.dumps(pids).encode())


def plan(
    known: Remembered | None,
    broker_ids: tuple[int, ...],
    cluster_id: UUID | None,
    port: int | None,
    held: HeldPorts,
) -> Remembered:
    """What is remembered, completed for these brokers; all of its ports are held.  `port`: the
    first broker's, if given."""
    brokers = dict(known.brokers) if known else {}
    wanted = {} if port is None else {b: port + place for place, b in enumerate(broker_ids)}
    # Before any is picked: each is another.
    for one in (*wanted.values(), *(_ports_of(known) if known else ())):
        held.keep(one)
    for broker_id in broker_ids:
        had = brokers.get(broker_id, Ports(kafka=0, metrics=0))
        brokers[broker_id] = Ports(
            kafka=wanted.get(broker_id) or had.kafka or held.pick(),
            metrics=had.metrics or held.pick(),
            replication=had.replication or held.pick(),
        )
    if known and cluster_id is not None and cluster_id != known.cluster_id:
        raise BadDirectory(
            f"the directory holds cluster {known.cluster_id}, the file asks for {cluster_id}"
        )
    return Remembered(
        cluster_id=known.cluster_id if known else cluster_id or uuid4(),
        controller_port=known.controller_port if known else held.pick(),
        brokers=brokers,
        api_port=(known.api_port if known else 0) or held.pick(),
    )


def next_port(known: Remembered, first: int | None) -> int | None:
    """Clients' port of a broker that joins later, where they follow the `first` one; None where one
    is picked."""
    if first is None:
        return None
    used = set(_ports_of(known))
    return next(port for port in range(first, PORT_MAX + 1) if port not in used)


def _ports_of(known: Remembered) -> Iterator[int]:
    """All that were picked or wanted."""
    for ports in known.brokers.values():
        yield from filter(None, (ports.kafka, ports.metrics, ports.replication))
    yield from filter(None, (known.controller_port, known.api_port))
