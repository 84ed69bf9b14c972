"""All three authorities of a cluster as their Secrets have them, and a client that follows them.

The internal one is replaced when it is asked for.  Those of listeners and of clients take years:
the test announces a next one, and dates the last step back.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import uuid
from pathlib import Path
from uuid import UUID

from dev.kubectl import wait_for
from tests.e2e.drill import SYSTEM, Drill

from plimsoll_operator.api import labels
from plimsoll_operator.manifests.listener_secrets import authorities_of
from plimsoll_operator.pki.authority import new_authority
from plimsoll_operator.pki.rotation import OVERLAP_MS, Authorities

SEEN_S = 120
USER = "certified"


class Rotation:
    """`begun`: what signed when it was made, by the name of its Secret."""

    def __init__(self, drill: Drill) -> None:
        self._drill = drill
        found = UUID(drill.get("logcluster", "main")["metadata"]["uid"])
        self.inside = labels.inside_authority(found)
        self.slow = labels.listener_authority(found), labels.client_authority(found)
        self.begun = {
            name: self.known(name).current.certificate for name in (self.inside, *self.slow)
        }

    def known(self, name: str) -> Authorities:
        found = authorities_of(self._drill.cluster.get("secret", name, SYSTEM) or {})
        assert found is not None, name
        return found

    def state(self, name: str) -> str:
        known = self.known(name)
        if known.announced is not None:
            return "announced"
        if known.former:
            return "signs"
        return "idle" if known.current.certificate == self.begun[name] else "retired"

    def announce(self) -> None:
        """Those of listeners and clients."""
        for name in self.slow:
            now_ms = time.time_ns() // 1_000_000
            pair = new_authority("next", now_ms)
            announced = {"announced.crt": pair.certificate, "announced.key": pair.key}
            self._write(name, {**announced, "since": str(now_ms).encode()})

    def wait(self, state: str) -> None:
        """Until those of listeners and clients are in it, their last step being an overlap old."""
        for name in self.slow:
            past_ms = time.time_ns() // 1_000_000 - OVERLAP_MS - 1000
            self._write(name, {"since": str(past_ms).encode()})
        for name in self.slow:
            wait_for(f"{name}: {state}", lambda name=name: self._in(name, state), SEEN_S)

    def _in(self, name: str, state: str) -> bool | None:
        looked_at(self._drill, "logcluster/main")
        return self.state(name) == state or None

    def _write(self, name: str, data: dict[str, bytes]) -> None:
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        patch = json.dumps({"data": encoded})
        self._drill.cluster.kubectl(
            "patch", "secret", name, "-n", SYSTEM, "--type=merge", "-p", patch
        )


class Client:
    """Who logs in by the certificate of User `certified`.  `tls`: what its connections are made
    with, from now on."""

    def __init__(self, drill: Drill, place: Path) -> None:
        self._drill = drill
        self._file = place / "client.pem"
        self.tls = ssl.create_default_context(cadata=self.trusted())
        self.certificate = b""
        self.learn()

    def trusted(self) -> str:
        """What clients are told to trust."""
        found = self._drill.cluster.get("configmap", "main-listener-ca", self._drill.namespace)
        return str((found or {})["data"]["ca.crt"])

    def learn(self) -> None:
        """As an application does when its files change: another certificate of its own, and
        whatever is to be trusted by now."""

        def renewed() -> dict[str, bytes] | None:
            looked_at(self._drill, f"user/{USER}")
            found = self._drill.cluster.get("secret", f"{USER}-kafka", self._drill.namespace) or {}
            data = {key: base64.b64decode(of) for key, of in (found.get("data") or {}).items()}
            return data if data.get("tls.crt", b"") not in (b"", self.certificate) else None

        data = wait_for("a certificate of the client", renewed, SEEN_S)
        self.certificate = data["tls.crt"]
        self._file.write_bytes(data["tls.crt"] + data["tls.key"])
        self.tls.load_cert_chain(self._file)

    def trusts_announced(self) -> None:
        """Both authorities of listeners are in the ConfigMap, and believed from now on."""

        def both() -> str | None:
            looked_at(self._drill, "logcluster/main")
            told = self.trusted()
            return told if told.count("BEGIN") == 2 else None

        self.tls.load_verify_locations(cadata=wait_for("both authorities", both, SEEN_S))


def looked_at(drill: Drill, thing: str) -> None:
    """Have the operator reconcile it now."""
    note = f"example.test/looked-at={uuid.uuid4().hex}"
    drill.cluster.kubectl("annotate", thing, "-n", drill.namespace, note, "--overwrite")
