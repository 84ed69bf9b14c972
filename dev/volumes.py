"""Provisions `local` volumes on the development node: a folder and a volume object per claim.

Called by node.sh as a host process. It creates volumes for claims of any StorageClass with the
provisioner `plimsoll.dev/local`, and removes released ones. Kubernetes has a `local` volume type
but no provisioner for it, and `hostPath` volumes, which need none, ignore `fsGroup`, so that pods
that are not root could not write to them.

Standard library only: it runs before any virtual environment exists.
"""

import argparse
import contextlib
import http.client
import json
import queue
import shutil
import signal
import ssl
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROVISIONER = "plimsoll.dev/local"
CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
WATCH_SECONDS = 300
RETRY_SECONDS_MAX = 5.0

Json = dict[str, Any]


class ApiRefusal(Exception):
    """Raised if the API server answers with an error."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {body[:500]}")
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """Requests to the API server, each on a connection of its own."""

    server: str
    tls: ssl.SSLContext

    def open(
        self, method: str, path: str, body: Json | None, timeout_s: float
    ) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
        connection = http.client.HTTPSConnection(self.server, timeout=timeout_s, context=self.tls)
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status >= 300:
            raise ApiRefusal(response.status, response.read().decode(errors="replace"))
        return connection, response

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        connection, response = self.open(method, path, body, timeout_s=30)
        with contextlib.closing(connection):
            answer: Json = json.load(response)
            return answer

    def events(self, path: str, since: str) -> Iterator[Json]:
        query = f"?watch=1&resourceVersion={since}&timeoutSeconds={WATCH_SECONDS}"
        connection, response = self.open("GET", path + query, None, timeout_s=WATCH_SECONDS + 30)
        with contextlib.closing(connection):
            for line in response:
                yield json.loads(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioner:
    """Creates the volume for one claim, or removes one released volume."""

    api: Api
    folder: Path
    node: str

    def on_claim(self, claim: Json) -> None:
        spec, meta = claim["spec"], claim["metadata"]
        if spec.get("volumeName") or meta.get("deletionTimestamp"):
            return
        storage_class = self.class_of(spec.get("storageClassName"))
        if storage_class is None:
            return
        late = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
        if late and meta.get("annotations", {}).get(SELECTED_NODE) != self.node:
            return
        name = f"pvc-{meta['uid']}"
        path = self.folder / name
        path.mkdir(mode=0o755, exist_ok=True)
        try:
            self.api.call("POST", VOLUMES, self.volume(name, path, claim, storage_class))
        except ApiRefusal as refusal:
            if refusal.status != http.client.CONFLICT:  # it was made for an earlier event
                raise
        else:
            say(f"made {name} for {meta['namespace']}/{meta['name']}")

    def class_of(self, name: str | None) -> Json | None:
        if not name:
            return None
        try:
            found = self.api.call("GET", f"{CLASSES}/{name}")
        except ApiRefusal as refusal:
            if refusal.status == http.client.NOT_FOUND:
                return None
            raise
        return found if found["provisioner"] == PROVISIONER else None

    def volume(self, name: str, path: Path, claim: Json, storage_class: Json) -> Json:
        spec, meta = claim["spec"], claim["metadata"]
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [self.node]}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            # Without this mark the controller manager would call the volume's deletion failed.
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
            "spec": {
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"],
                "volumeMode": spec.get("volumeMode", "Filesystem"),
                "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
                "storageClassName": spec["storageClassName"],
                "local": {"path": str(path)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": meta["namespace"],
                    "name": meta["name"],
                    "uid": meta["uid"],
                },
            },
        }

    def on_volume(self, volume: Json) -> None:
        meta, spec = volume["metadata"], volume["spec"]
        mine = meta.get("annotations", {}).get(PROVISIONED_BY) == PROVISIONER
        released = volume.get("status", {}).get("phase") == "Released"
        if not mine or not released or spec["persistentVolumeReclaimPolicy"] != "Delete":
            return
        path = Path(spec["local"]["path"])
        assert path.parent == self.folder, f"{meta['name']} lies at {path}, not in {self.folder}"
        if path.exists():
            shutil.rmtree(path)
        try:
            self.api.call("DELETE", f"{VOLUMES}/{meta['name']}")
        except ApiRefusal as refusal:
            if refusal.status != http.client.NOT_FOUND:  # it went for an earlier event
                raise
        say(f"removed {meta['name']}")


def say(what: str) -> None:
    print(what, flush=True)


Work = queue.Queue[tuple[str, Json]]


def follow(api: Api, path: str, work: Work, stopping: threading.Event) -> None:
    """List the objects at `path`, then watch them, then list again, until `stopping` is set. Put
    each into `work`. No object is missed, and an API server that does not answer is waited for."""
    pause_s = 0.1
    while not stopping.is_set():
        try:
            listed = api.call("GET", path)
            for item in listed["items"]:
                work.put((path, item))
            for event in api.events(path, listed["metadata"]["resourceVersion"]):
                if event["type"] == "ERROR":
                    break  # the version is too old for the server: list again
                if event["type"] in ("ADDED", "MODIFIED"):
                    work.put((path, event["object"]))
            pause_s = 0.1
        except (OSError, http.client.HTTPException, ApiRefusal, json.JSONDecodeError) as error:
            say(f"{path}: {error}; again in {pause_s:.1f} s")
            stopping.wait(pause_s)
            pause_s = min(2 * pause_s, RETRY_SECONDS_MAX)


def serve(provisioner: Provisioner, work: Work, stopping: threading.Event) -> None:
    """Handle the objects in the queue until `stopping` is set. If the API server refuses a request,
    the next list brings the object again."""
    handlers = {CLAIMS: provisioner.on_claim, VOLUMES: provisioner.on_volume}
    while not stopping.is_set():
        try:
            path, item = work.get(timeout=0.2)
        except queue.Empty:
            continue
        try:
            handlers[path](item)
        except (OSError, http.client.HTTPException, ApiRefusal) as error:
            say(f"{item['metadata']['name']}: {error}; trying again")
            if not stopping.wait(1):
                with contextlib.suppress(queue.Full):
                    work.put_nowait((path, item))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pki", type=Path, required=True, help="folder with admin.crt and ca.crt")
    options.add_argument("--server", required=True, help="the API server, HOST:PORT")
    options.add_argument("--volumes", type=Path, required=True, help="folder to make volumes in")
    options.add_argument("--node", required=True, help="the node that all volumes lie on")
    given = options.parse_args()
    tls = ssl.create_default_context(cafile=given.pki / "ca.crt")
    tls.load_cert_chain(given.pki / "admin.crt", given.pki / "admin.key")
    api = Api(server=given.server, tls=tls)
    work: Work = queue.Queue(maxsize=10_000)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    for path in (CLAIMS, VOLUMES):
        threading.Thread(target=follow, args=(api, path, work, stopping), daemon=True).start()
    serve(Provisioner(api=api, folder=given.volumes, node=given.node), work, stopping)


if __name__ == "__main__":
    main()
