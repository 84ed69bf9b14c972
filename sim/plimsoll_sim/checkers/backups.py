"""Checks the backup of the metadata: what is exported was committed, and a restore from it gives up
no decision that a running broker can prove, and nothing at all that no person chose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgspec

from plimsoll_core.cluster.image_encoding import encode_image
from plimsoll_core.cluster.model import HistoryRestored
from plimsoll_core.cluster.records import ControllerChanged, Record
from plimsoll_operator.api.labels import RESTORE_METADATA
from plimsoll_operator.backup.backup_objects import decode, parse
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_sim.desired.objects import AppliedObjects
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import Violation

_records = msgspec.json.Decoder(tuple[Record, ...])


class BackupChecker:
    """Looks at each object that is stored in the bucket, and at each batch of the metadata log.
    `accuse` takes a violation, which the operator that caused it must not catch."""

    def __init__(
        self,
        cluster_id: UUID,
        ghost: MetadataGhost,
        objects: AppliedObjects,
        accuse: Callable[[Violation], None],
    ) -> None:
        self._cluster_id = cluster_id
        self._ghost = ghost
        self._objects = objects
        self._accuse = accuse
        self.exported = 0
        """The metadata offset up to which committed metadata were exported."""

    def wrote(self, name: str, data: bytes) -> None:
        """Check an object that an operator stored: all of it is committed."""
        known = parse(name)
        ghost = self._ghost
        if known is None or ghost.restored or ghost.chosen:
            return
        content = decode(data, known, self._cluster_id)
        ends = [(int(one.end_offset), one.nonce) for one in content.batches]
        same = True
        if known.is_snapshot:
            ends, image = [(known.end, known.nonce)], ghost.images.get(known.end)
            same = image is not None and encode_image(image) == content.image
        strange = [end for end, nonce in ends if not same or not ghost.ends_at(end, nonce)]
        if strange:
            text = f"{name} has metadata that were never committed, up to offsets {strange}"
            self._accuse(Violation("BackupCommitted", text))
        self.exported = max(self.exported, known.end)

    def stored(self, spec: dict[str, Any]) -> None:
        """Check a batch of the metadata log: if it begins a term with a history from the backup,
        a person has chosen that history, and no running broker has applied more."""
        stored = spec.get("records") or ()
        if not any(one.get("restored") for one in stored):
            return
        for record in _records.decode(msgspec.json.encode(stored)):
            restored = record.restored if isinstance(record, ControllerChanged) else None
            if restored is not None and restored.from_backup:
                self._restored(restored)

    def _restored(self, restored: HistoryRestored) -> None:
        end = restored.end_offset
        body = self._objects.body(LOG_CLUSTERS, self._objects.name)
        annotations = body["metadata"].get("annotations") or {}
        chosen = annotations.get(RESTORE_METADATA, "").startswith(f"{end}-{restored.digest}")
        if not restored.confirmed or not chosen:
            text = f"restored from the backup up to {end}, which no person chose"
            self._accuse(Violation("BackupRestored", text))
        further = {b: at for b, at in self._ghost.applied().items() if at > end}
        if further:
            text = f"restored from the backup up to {end}, and brokers have applied {further}"
            self._accuse(Violation("BackupRestored", text))
