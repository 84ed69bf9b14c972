"""The layout of a local cluster's directory, and `cluster.json`, which keeps its id and ports.

Ports are picked once and kept, so that clients find a restarted cluster at the same address. The
API server checks the spelling of names (`api_server.name_rules`), but restores objects of an
earlier run unchecked; so `within` builds every path that contains an object's name.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import stat
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
    """The content of `cluster.json`: what a directory keeps between runs. `brokers`: ports by
    broker id."""

    cluster_id: UUID
    controller_port: int
    brokers: dict[int, Ports]
    api_port: int = 0
    """The port of the API server; 0: another process holds the former one."""
    metrics_port: int = 0
    """The port of the operator's metrics; 0: another process holds the former one."""
    first_port: int = 0
    """The port for clients of the first broker, if the command line stated it; 0: it was picked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerCredentials:
    """Credentials of the owner for the local API server, valid until it is restarted: the bearer
    token, and the CA certificate (PEM) that signed the server's certificate."""

    token: str
    authority: bytes

    def __repr__(self) -> str:
        return "OwnerCredentials(***)"


class BadDirectory(Exception):
    """Raised if the directory of a local cluster cannot be used. The message is a sentence for the
    user."""


class DirectoryLayout:
    """The paths in a local cluster's directory, and the small files that it writes itself."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def metadata(self) -> Path:
        return self.root / "metadata"

    @property
    def history(self) -> Path:
        """Return the folder of the history: archived changes of leaders and ISRs."""
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
        """Return the folder of a driver's pod, which holds its volumes while it runs."""
        return self.root / "pods" / name

    @property
    def claims(self) -> Path:
        """Return the folder of the volume claims that drivers mount, each a folder that stays."""
        return self.root / "claims"

    def pod_log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    @property
    def pki(self) -> Path:
        """Return the folder of certificates and keys, which only the owner can read."""
        return self.root / "pki"

    def broker_pki(self, broker_id: int) -> Path:
        """Return the folder into which the Secret with a broker's certificates is mounted."""
        return self.pki / f"broker-{broker_id}"

    @property
    def backup(self) -> Path:
        """Return the folder of the metadata's backup, if the LogCluster declares one."""
        return self.root / "backup"

    @property
    def listener_authority(self) -> Path:
        """Return the file of the CA certificate that clients of TLS listeners must trust."""
        return self.pki / "listener-ca.crt"

    @property
    def objects(self) -> Path:
        """Return the file in which the API server's objects are kept between runs, Secrets
        included."""
        return self.root / "objects.json"

    @property
    def users(self) -> Path:
        """Return the folder that holds a folder of credentials for each User."""
        return self.root / "users"

    @property
    def kubeconfig(self) -> Path:
        """Return the kubeconfig file, which holds the API server's address and token for
        `kubectl`."""
        return self.root / "kubeconfig"

    def prepare(self) -> None:
        """Create the directory, which only the owner can enter since it holds records and Secrets,
        and its subfolders, as far as they do not exist. An existing directory keeps its mode.
        Raises BadDirectory if that fails, or other users can replace the directory's files."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if why := _shared(self.root):
                raise BadDirectory(f"Cannot use {self.root} as this cluster's directory: {why}.")
            self.logs.mkdir(exist_ok=True)
            self.history.mkdir(exist_ok=True)
        except OSError as error:
            raise BadDirectory(
                f"Cannot use {self.root} as this cluster's directory: {error.strerror}."
            ) from error

    def remembered(self) -> Remembered | None:
        """Return the content of `cluster.json`, or None if the file does not exist, as in a new
        directory. Raises BadDirectory if the file does not belong to a local cluster."""
        path = self.root / "cluster.json"
        if not path.exists():
            return None
        try:
            return msgspec.json.decode(path.read_bytes(), type=Remembered)
        except msgspec.DecodeError as error:
            raise BadDirectory(
                f"The file {path} must describe the local cluster in this directory, but is "
                f"damaged: {error}. Restore the file, or use another directory."
            ) from error

    def remember(self, remembered: Remembered) -> None:
        write_whole(self.root / "cluster.json", msgspec.json.encode(remembered))

    def show_api(self, url: str, owner: OwnerCredentials, namespace: str) -> None:
        """Write the kubeconfig file, readable by its owner alone. `url`: the API server's;
        `namespace`: the one that `kubectl` uses without `-n`."""
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
        """Write `pids.json`: the process ids of the running processes, by name."""
        write_whole(self.root / "pids.json", json.dumps(pids).encode())


def plan(
    known: Remembered | None,
    broker_ids: tuple[int, ...],
    cluster_id: UUID | None,
    first: int | None,
    held: HeldPorts,
) -> Remembered:
    """Return the content of `cluster.json`, completed with ports for these brokers, and hold all
    its ports in `held`. `known`: the present content; None in a new directory. `cluster_id`: the
    cluster's id; None: the known one, or a new one. `first`: the clients' port of the first broker
    as the command line states it; the others get the following ports. If `first` is None, or is
    that of the last run, each broker keeps its port. Raises BadDirectory if the directory holds a
    cluster of another id, OSError if no port is free."""
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
            f"the local cluster's directory holds cluster {known.cluster_id}, but spec.clusterId "
            f"is {cluster_id}: use another directory, or leave spec.clusterId out"
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
    """Return `known` without the clients' ports of all brokers, and without other ports in the
    range `stated`, so that `plan` picks them anew."""

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
    """Yield the port numbers from `first` on, without those in `known`. Yield none if `first` is
    None."""
    used = set(_ports_of(known))
    ports = () if first is None else range(first, PORT_MAX + 1)
    return (port for port in ports if port not in used)


def _ports_of(known: Remembered | None) -> Iterator[int]:
    if known is None:
        return
    for ports in known.brokers.values():
        yield from filter(None, (ports.kafka, ports.metrics, ports.replication))
    yield from filter(None, (known.controller_port, known.api_port, known.metrics_port))


def _shared(root: Path) -> str:
    """Return why other users could replace files in the directory, as part of a sentence; "" if
    they cannot. Root may do so anyway, and root's processes may use any owner's directory."""
    found, own = root.stat(), os.geteuid()
    if found.st_uid not in (own, 0) and own != 0:
        return "it belongs to another user"
    if found.st_mode & stat.S_IWOTH:
        return "every user can write to it; run `chmod o-w` on it, or choose another one"
    return ""


class OutsideFolder(OSError):
    """Raised if a name, joined to its folder's path, is not the path of an entry of that folder."""


def within(folder: Path, name: str) -> Path:
    """Return the path of the entry `name` directly in `folder`; it may not exist yet. Raises
    OutsideFolder if the name, or a symbolic link, leads elsewhere."""
    path = folder / name
    try:
        inside = path.resolve().parent == folder.resolve() and path.name == name
    except (ValueError, RuntimeError):  # a zero byte, or links in a circle
        inside = False
    if not inside:
        raise OutsideFolder(
            errno.EPERM, f"the name {name[:80]!r} is no valid file name in the folder {folder}"
        )
    return path
