"""The authorities of a cluster as their Secrets have them, and a client that follows its own.

The internal one is replaced when it is asked for.  That of clients takes years: the test plants one
that is two years old, which the operator announces the next one of, and dates the later steps back.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from dev.kubectl import wait_for
from tests.e2e.drill import SYSTEM, Drill

from plimsoll_operator.api import labels
from plimsoll_operator.manifests.listener_secrets import authorities_of
from plimsoll_operator.pki.authority import DAY_MS, new_authority, signed_by
from plimsoll_operator.pki.rotation import CLIENT_OVERLAP_MS, OVERLAP_MS, Authorities

SEEN_S = 90
LOOK_S = 3
"""After so long who follows an authority asks for its changes anew, or ends."""
USER = "certified"
PORT = 9094
LISTENER = {"name": USER, "port": PORT, "tls": {}, "authentication": ["Tls"]}
OVERLAPS_MS = {"announced": OVERLAP_MS, "signs": CLIENT_OVERLAP_MS}
"""How long a state lasts."""
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""The request that every client begins with: its length, API, version, correlation id, no name."""


class Rotation:
    """One authority.  `states`: all that it went through while it was followed; `begun`: its
    certificate before."""

    def __init__(self, drill: Drill, name: str) -> None:
        self._drill = drill
        self.name = name
        self.states: list[str] = []
        self.begun = b""
        self._failed: Exception | None = None

    @classmethod
    def inside(cls, drill: Drill) -> Rotation:
        made = cls(drill, labels.inside_authority(cluster_id(drill)))
        made.begun = made.known().current.certificate
        return made

    @classmethod
    def of_clients(cls, drill: Drill) -> Rotation:
        """Before the cluster has one."""
        found = cluster_id(drill)
        made = cls(drill, labels.client_authority(found))
        made_ms = _now_ms() - 800 * DAY_MS
        pair = new_authority("main clients", made_ms)
        made.begun = pair.certificate
        data = {"ca.crt": pair.certificate, "ca.key": pair.key, "since": str(made_ms).encode()}
        metadata = {
            "name": made.name,
            "namespace": SYSTEM,
            "labels": labels.labels("main", found, "client-ca"),
        }
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": labels.TLS_SECRET,
            "data": _encoded(data),
        }
        drill.cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))
        return made

    def known(self) -> Authorities:
        found = authorities_of(self._drill.cluster.get("secret", self.name, SYSTEM) or {})
        assert found is not None, self.name
        return found

    @property
    def state(self) -> str:
        return self._state_of(self.known())

    def _state_of(self, known: Authorities) -> str:
        if known.announced is not None:
            return "announced"
        if known.former:
            return "signs"
        return "idle" if known.current.certificate == self.begun else "retired"

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Within: each version of the Secret is looked at, however short it is there."""
        over = threading.Event()
        thread = threading.Thread(target=self._follow, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        assert self._failed is None, self._failed

    def _follow(self, over: threading.Event) -> None:
        seen, cluster = "", self._drill.cluster
        while not over.is_set() and self._failed is None:
            try:
                for secret in cluster.changes("secret", self.name, SYSTEM, seen, LOOK_S):
                    seen = secret["metadata"]["resourceVersion"]
                    self._add(secret)
            except Exception as error:  # noqa: BLE001 - told by the thread that follows
                self._failed = error

    def _add(self, secret: dict[str, Any]) -> None:
        known = authorities_of(secret)
        assert known is not None, self.name
        if self.states[-1:] != [state := self._state_of(known)]:
            self.states.append(state)

    def let_time_pass(self) -> None:
        """The state that it is in has lasted for as long as it has to."""
        past_ms = _now_ms() - OVERLAPS_MS[self.state] - 1_000
        patch = json.dumps({"data": _encoded({"since": str(past_ms).encode()})})
        arguments = ("-n", SYSTEM, "--type=merge", "-p", patch)
        self._drill.cluster.kubectl("patch", "secret", self.name, *arguments)


class CertifiedClient:
    """What User `certified` shows.  `first`: its first certificate for good; `newest`: what an
    application shows that loads its files when they change."""

    def __init__(self, drill: Drill, place: Path) -> None:
        self._drill = drill
        self._file = place / "client.pem"
        drill.apply("User", USER, {"authentication": {"tls": {}}})
        self.first, self.newest = self._context(), self._context()
        self.certificate = wait_for("a certificate of the client", self._held, SEEN_S)["tls.crt"]
        self._load(self.first)
        self._load(self.newest)

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=trusted_by_clients(self._drill))

    def _held(self) -> dict[str, bytes] | None:
        found = self._drill.cluster.get("secret", f"{USER}-kafka", self._drill.namespace) or {}
        data = {key: base64.b64decode(of) for key, of in (found.get("data") or {}).items()}
        return data if "tls.crt" in data else None

    def _load(self, context: ssl.SSLContext) -> None:
        data = self._held()
        assert data is not None
        self._file.write_bytes(data["tls.crt"] + data["tls.key"])
        context.load_cert_chain(self._file)

    def learns(self, authority: bytes) -> bool:
        """Whether it has a certificate of this authority now, which it shows from then on."""
        data = self._held()
        if data is None or not signed_by(data["tls.crt"], authority):
            return False
        if data["tls.crt"] != self.certificate:
            self._load(self.newest)
            self.certificate = data["tls.crt"]
        return True

    def let_in(self, broker: int, shown: ssl.SSLContext) -> bool:
        """Whether a new connection that shows this is answered."""
        name = f"main-bootstrap.{self._drill.namespace}.svc"
        pod = self._drill.pod(broker)
        assert pod is not None
        try:
            with (
                socket.create_connection((pod["status"]["podIP"], PORT), 10) as plain,
                shown.wrap_socket(plain, server_hostname=name) as secured,
            ):
                secured.sendall(API_VERSIONS)
                return len(secured.recv(4)) == 4
        except (ssl.SSLError, ConnectionError):
            return False

    def wait_until_let_in(self, broker: int) -> None:
        """By the newest: once the broker has heard of it."""
        wait_for("a login", lambda: self.let_in(broker, self.newest) or None, SEEN_S)

    def refused(self, broker: int, shown: ssl.SSLContext) -> bool | None:
        return not self.let_in(broker, shown) or None


def trusted_by_clients(drill: Drill) -> str:
    found = drill.cluster.get("configmap", "main-listener-ca", drill.namespace) or {}
    return str(found["data"]["ca.crt"])


def cluster_id(drill: Drill) -> UUID:
    return UUID(drill.get("logcluster", "main")["metadata"]["uid"])


def _encoded(data: dict[str, bytes]) -> dict[str, Any]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
