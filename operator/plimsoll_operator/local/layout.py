"""The layout of a local cluster's directory, and the facts that it keeps between runs.

Ports are picked once and kept, so that clients find a restarted cluster at the same address. The
API server checks the spelling of names (`api_server.name_rules`), but restores objects of an
earlier run unchecked; so `within` builds every path that contains an object's name.
"""

from __future__ import annotations

import base64
import errno
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import yaml
from msgspec.structs import replace

from plimsoll_operator.local.ports import HeldPorts, Ports
from plimsoll_operator.metalog.directory import write_whole

PORT_MAX = 65_535


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `cluster.json`."""

    cluster_id: UUID
    controller_port: int
    brokers: dict[int, Ports]
    api_port: int = 0
    """0: an earlier version picked none."""
    metrics_port: int = 0
    """The port of the operator's metrics; 0: as above."""
    first_port: int = 0
    """The first of the clients' ports; 0: they were picked, or assigned by an earlier version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerCredentials:
    """Credentials for the API server of one start: the token, and the authority that signed its
    certificate (PEM)."""

    token: str
    authority: bytes

    def __repr__(self) -> str:
        return "OwnerCredentials(***)"


class BadDirectory(Exception):
    """The directory cannot be used; the message is a sentence for the user."""


class DirectoryLayout:
    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def metadata(self) -> Path:
        return self.root / "metadata"

    @property
    def history(self) -> Path:
        """Return the archive of changes of leaders and ISRs, beyond the metadata log."""
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
        """Return the folder of a running driver's volumes."""
        return self.root / "pods" / name

    def pod_log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    @property
    def pki(self) -> Path:
        """Certificates and keys; only the owner can read them."""
        return self.root / "pki"

    def broker_pki(self, broker_id: int) -> Path:
        """Return the folder of a broker's certificates."""
        return self.pki / f"broker-{broker_id}"

    @property
    def listener_authority(self) -> Path:
        """Return the file of the authority that clients of TLS listeners trust."""
        return self.pki / "listener-ca.crt"

    @property
    def objects(self) -> Path:
        """Return the file of the API server's objects as of the last change, Secrets included."""
        return self.root / "objects.json"

    @property
    def users(self) -> Path:
        """Return the folder with a directory of credentials for each user."""
        return self.root / "users"

    @property
    def kubeconfig(self) -> Path:
        """Return the kubeconfig for `kubectl`: the API server's address and token."""
        return self.root / "kubeconfig"

    def prepare(self) -> None:
        """Create the directory for its owner alone: it holds records and Secrets. Raises
        BadDirectory."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.logs.mkdir(exist_ok=True)
            self.history.mkdir(exist_ok=True)
        except OSError as error:
            raise BadDirectory(
                f"Cannot use {self.root} as this cluster's directory: {error.strerror}."
            ) from error

    def remembered(self) -> Remembered | None:
        """Return the facts that an earlier run left. Raises BadDirectory."""
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
        """Write the kubeconfig file, for its owner alone. `namespace`: the default one of
        `kubectl`."""
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
        """Write `pids.json`: the running processes. A restarted broker gets a new pid."""
        write_whole(self.root / "pids.json", json.dumps(pids).encode())


def plan(
    known: Remembered | None,
    broker_ids: tuple[int, ...],
    cluster_id: UUID | None,
    first: int | None,
    held: HeldPorts,
) -> Remembered:
    """Complete the remembered facts for these brokers, and hold all ports. `first`: if given, the
    clients' port of the first broker; the others get the following ports. If it has not changed
    since the last run, each broker keeps its port."""
    if known and first is not None and first != known.first_port:
        known = _without(known, range(first, first + len(broker_ids)))
    brokers = dict(known.brokers) if known else {}
    following = _following(known, first)
    new = [b for b in broker_ids if b not in brokers or not brokers[b].kafka]
    wanted = {b: next(following, 0) for b in new}
    # Hold known ports before picking others, so that all are distinct.
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
    """Release all ports of clients, and other ports that lie in the stated range."""

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
    """Yield ports from `first` on that are not remembered."""
    used = set(_ports_of(known))
    ports = () if first is None else range(first, PORT_MAX + 1)
    return (port for port in ports if port not in used)


def _ports_of(known: Remembered | None) -> Iterator[int]:
    if known is None:
        return
    for ports in known.brokers.values():
        yield from filter(None, (ports.kafka, ports.metrics, ports.replication))
    yield from filter(None, (known.controller_port, known.api_port, known.metrics_port))


class OutsideFolder(OSError):
    """A name leads out of its folder."""


def within(folder: Path, name: str) -> Path:
    """Return the entry `name` of `folder` itself, which may not exist yet. Raises OutsideFolder."""
    path = folder / name
    try:
        inside = path.resolve().parent == folder.resolve() and path.name == name
    except (ValueError, RuntimeError):  # a zero byte, or links in a circle
        inside = False
    if not inside:
        raise OutsideFolder(errno.EPERM, f"{name[:80]!r} is not the name of a file in {folder}")
    return path
