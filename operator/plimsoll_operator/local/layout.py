"""Where a local cluster keeps what in its directory, and what it remembers between runs.

Ports are picked once and kept, so that clients find a restarted cluster where it
was.  Called by `cluster`; decides nothing else.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import yaml
from msgspec.structs import replace

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
    metrics_port: int = 0
    """Of the operator's metrics; 0: as above."""
    first_port: int = 0
    """From which on clients' ports were given out; 0: picked, or given by an earlier version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerCredentials:
    """With what the API server of one start is asked: its token, and who vouches for it (PEM)."""

    token: str
    authority: bytes

    def __repr__(self) -> str:
        return "OwnerCredentials(***)"


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
        """For `kubectl`: where the API server is, and the token that opens it."""
        return self.root / "kubeconfig"

    def prepare(self) -> None:
        """A directory that is made here is for its owner alone: records and Secrets lie in it."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.logs.mkdir(exist_ok=True)
            self.history.mkdir(exist_ok=True)
        except OSError as error:
            raise BadDirectory(
                f"Cannot use {self.root} as this cluster's directory: {error.strerror}."
            ) from error

    def remembered(self) -> Remembered | None:
        """What an earlier run left."""
        path = self.root / "cluster.json"
        if not path.exists():
            return None
        try:
            return msgspec.json.decode(path.read_bytes(), type=Remembered)
        except msgspec.DecodeError as error:
            raise BadDirectory(f"{path} does not belong to a local cluster: {error}") from error

    def remember(self, remembered: Remembered) -> None:
        write_whole(self.root / "cluster.json", msgspec.json.encode(remembered))

    def show_api(self, url: str, owner: OwnerCredentials, namespace: str) -> None:
        """Write the kubeconfig file, for its owner alone; `namespace` is the one that `kubectl`
        looks into."""
        name = "plimsoll-local"
        authority = base64.b64encode(owner.authority).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": name,
                    "cluster": {"server": url, "certificate-authority-data": authority},
                }
            ],
            "users": [{"name": name, "user": {"token": owner.token}}],
            "contexts": [
                {
                    "name": name,
                    "context": {"cluster": name, "user": name, "namespace": namespace},
                }
            ],
            "current-context": name,
        }
        text = yaml.safe_dump(config, sort_keys=False)
        write_whole(self.kubeconfig, text.encode(), private=True)

    def show_pids(self, pids: dict[str, int]) -> None:
        """`pids.json`: who runs now; brokers get new ones when they are restarted."""
        write_whole(self.root / "pids.json", json.dumps(pids).encode())


def plan(
    known: Remembered | None,
    broker_ids: tuple[int, ...],
    cluster_id: UUID | None,
    first: int | None,
    held: HeldPorts,
) -> Remembered:
    """What is remembered, completed for these brokers; all of its ports are held.  `first`, if
    given: clients' port of the first broker, which the others follow; where it is what it was
    before, each has the one that it had."""
    if known and first is not None and first != known.first_port:
        known = _without(known, range(first, first + len(broker_ids)))
    brokers = dict(known.brokers) if known else {}
    following = _following(known, first)
    new = [b for b in broker_ids if b not in brokers or not brokers[b].kafka]
    wanted = {b: next(following, 0) for b in new}
    # Before any is picked: each is another.
    for one in (*filter(None, wanted.values()), *_ports_of(known)):
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
            f"the directory holds cluster {known.cluster_id}, but the file asks for {cluster_id}"
        )
    return Remembered(
        cluster_id=known.cluster_id if known else cluster_id or uuid4(),
        controller_port=(known.controller_port if known else 0) or held.pick(),
        brokers=brokers,
        api_port=(known.api_port if known else 0) or held.pick(),
        metrics_port=(known.metrics_port if known else 0) or held.pick(),
        first_port=first or (known.first_port if known else 0),
    )


def _without(known: Remembered, stated: range) -> Remembered:
    """Clients' ports are given out anew, and what was picked is none of those that are stated."""

    def kept(port: int) -> int:
        return 0 if port in stated else port

    brokers = {
        broker_id: Ports(kafka=0, metrics=kept(one.metrics), replication=kept(one.replication))
        for broker_id, one in known.brokers.items()
    }
    return replace(
        known,
        brokers=brokers,
        controller_port=kept(known.controller_port),
        api_port=kept(known.api_port),
        metrics_port=kept(known.metrics_port),
    )


def _following(known: Remembered | None, first: int | None) -> Iterator[int]:
    """None of those that are remembered."""
    used = set(_ports_of(known))
    ports = () if first is None else range(first, PORT_MAX + 1)
    return (port for port in ports if port not in used)


def _ports_of(known: Remembered | None) -> Iterator[int]:
    """All that were picked or wanted."""
    if known is None:
        return
    for ports in known.brokers.values():
        yield from filter(None, (ports.kafka, ports.metrics, ports.replication))
    yield from filter(None, (known.controller_port, known.api_port, known.metrics_port))
