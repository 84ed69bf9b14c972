"""One step in the life of a metadata log on Kubernetes, by the release that is in PYTHONPATH.

`python log_of_releases.py STATE BATCHES` opens the ring whose objects are in the file STATE, begins
a term, writes so many batches, with snapshots as they fall due, and prints as JSON which slots the
log began with, how many there are now, and what is in the log.  Run by
test_metadata_log_of_releases.py; imports nothing of ours but what both releases have.
"""

import asyncio
import json
import sys
import uuid
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

from plimsoll_core.ids import ControllerEpoch
from plimsoll_operator.metalog import codec


def _first_of(*modules: str) -> Any:
    """The first module that this release has."""
    for name in modules:
        with suppress(ImportError):
            return import_module(name)
    raise ImportError(modules)


records = _first_of("plimsoll_core.cluster.records", "plimsoll_core.records")
places = _first_of("plimsoll_operator.metalog.kube_objects", "plimsoll_operator.metalog.objects")
ring_log = _first_of(
    "plimsoll_operator.metalog.kubernetes_log",
    "plimsoll_operator.metalog.ring_log",
    "plimsoll_operator.metalog.kubernetes",
)
PRESENT = hasattr(ring_log, "RingOptions")
Options = ring_log.RingOptions if PRESENT else ring_log.Options
# Release 0.1 does not say when a batch was written.
WRITTEN_MS = (1,) if PRESENT else ()
CLUSTER_ID = UUID("5f2b1c3a-9d4e-4f60-8a7b-0c1d2e3f4a5b")
PLACE = places.Place(namespace="default", cluster_name="demo", cluster_id=CLUSTER_ID)


class FileApi:
    """As much of an API server as the log asks for."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.objects: dict[str, Any] = state["objects"]
        self.revision: int = state["revision"]

    async def request(
        self, method: str, path: str, *, params: dict[str, str], body: bytes = b""
    ) -> Any:
        plural, _, name = path.split("/", 6)[6].partition("/")
        key = f"{plural}/{name}"
        item: Any = json.loads(body) if body else None
        if method == "GET" and not name:
            found = [
                one
                for at, one in sorted(self.objects.items())
                if at.startswith(key) and _selected(one, params["labelSelector"])
            ]
            said = {"metadata": {"resourceVersion": str(self.revision)}, "items": found}
            return places.Answer(status=200, body=json.dumps(said).encode())
        if method == "POST":
            key += item["metadata"]["name"]
            if key in self.objects:
                return places.Answer(status=409, body=b"{}")
            item["metadata"]["uid"] = str(uuid.uuid4())
            return self._save(201, key, item)
        if key not in self.objects:
            return places.Answer(status=404, body=b"{}")
        meta = self.objects[key]["metadata"]
        if method == "DELETE":
            del self.objects[key]
            return places.Answer(status=200, body=b"{}")
        if method == "PUT":
            if item["metadata"]["resourceVersion"] != meta["resourceVersion"]:
                return places.Answer(status=409, body=b"{}")
            return self._save(200, key, item)
        return places.Answer(status=200, body=json.dumps(self.objects[key]).encode())

    def _save(self, status: int, key: str, item: Any) -> Any:
        self.revision += 1
        item["metadata"]["resourceVersion"] = str(self.revision)
        self.objects[key] = item
        return places.Answer(status=status, body=json.dumps(item).encode())

    async def close(self) -> None: ...

    @property
    def slots(self) -> int:
        return sum(one.startswith("metadatabatches/") for one in self.objects)


def _selected(item: Any, selector: str) -> bool:
    wanted = dict(part.split("=") for part in selector.split(","))
    labels: dict[str, str] = item["metadata"]["labels"]
    return wanted.items() <= labels.items()


def _marks(batches: Any) -> list[str]:
    return [record.cause for batch in batches for record in codec.decode_records(batch)]


async def step(path: Path, count: int) -> dict[str, Any]:
    api = FileApi(json.loads(path.read_text()))
    log = ring_log.RingLog(api, PLACE, Options(backoff_ms=1))
    opened = await log.open()
    image = json.loads(opened.snapshot.image_bytes) if opened.snapshot else []
    image += _marks(opened.batches)
    before, tip, began = list(image), opened.tip, api.slots
    epoch = tip.controller_epoch + 1

    async def put(record: Any) -> None:
        nonlocal tip
        for batch in codec.pack([record], tip, epoch, lambda: uuid.uuid4().hex[:12], *WRITTEN_MS):
            await log.append(batch)
            tip = tip.after(batch)
        image.append(record.cause)

    term = ControllerEpoch(epoch)
    await put(records.ControllerChanged(cause=f"e{epoch}", controller_epoch=term, identity="x"))
    for number in range(count):
        if log.needs_snapshot():
            end, nonce = tip.next_offset, tip.nonce
            assert nonce is not None
            name = await log.write_snapshot(json.dumps(image).encode(), end, nonce, epoch)
            taken = records.SnapshotTaken(cause=f"took {name}", end_offset=end, name=name)
            await put(taken)
            await log.release(taken)
        await put(records.MembersChanged(cause=f"e{epoch}/{number}", broker_ids=()))
        await asyncio.sleep(0)
    await log.close()
    path.write_text(json.dumps({"objects": api.objects, "revision": api.revision}))
    return {"before": before, "began": began, "slots": api.slots, "image": image}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(step(Path(sys.argv[1]), int(sys.argv[2])))))
