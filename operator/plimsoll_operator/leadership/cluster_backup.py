"""The backup of one led cluster: its tasks, and what its restore reads."""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from plimsoll_operator.api.labels import RESTORE_FROM_BACKUP
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.backup.backup_clock import BackupClock
from plimsoll_operator.backup.backup_objects import NEWEST
from plimsoll_operator.backup.backup_place import BackupPlace, point_of
from plimsoll_operator.backup.backup_reading import NoPoint, read_point
from plimsoll_operator.backup.backup_stores import StoreUnavailable
from plimsoll_operator.backup.backup_writer import BackupState, BackupWriter
from plimsoll_operator.backup.restore_drills import RestoreDrills
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.controller.metadata_restoration import BackupOffer
from plimsoll_operator.leadership.process_parts import Parts

logger = logging.getLogger("plimsoll.backup")


class ClusterBackup:
    """Writes the backup of one LogCluster while this process leads it, and reads it for a
    restore. `cluster`: returns the LogCluster as last seen."""

    def __init__(
        self,
        parts: Parts,
        cluster: Callable[[], LogCluster | None],
        cluster_id: UUID,
        changed: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._cluster_id = cluster_id
        self._changed = changed
        self._clock = BackupClock(parts.now_ms, parts.monotonic_ms, lambda: parts.kube.answered_ms)
        self._place = BackupPlace(
            cluster, cluster_id, parts.kube, parts.backup_directory, parts.make_bucket
        )
        self._writer: BackupWriter | None = None
        self._drills: RestoreDrills | None = None

    @property
    def state(self) -> BackupState | None:
        return None if self._writer is None else self._writer.state

    def follow(self, controller: Controller) -> None:
        """Say which controller's metadata is backed up."""
        self._writer = BackupWriter(
            self._cluster_id, controller, self._place, self._clock, self._changed
        )
        self._drills = RestoreDrills(
            self._cluster_id,
            controller,
            self._place,
            lambda: self.state,
            self._clock,
            self._changed,
        )

    async def drill(self) -> None:
        """Begin each restore drill that is due, until cancelled."""
        assert self._drills is not None, "the controller is known"
        await self._drills.run()

    async def write(self) -> None:
        """Write the backup until cancelled."""
        assert self._writer is not None, "the controller is known"
        await self._writer.run()

    @property
    def asked(self) -> bool:
        """Return True if an empty log must not begin while there may be a backup: a person asks for
        one of its points, or states the id of a former cluster."""
        found = self._cluster()
        if found is None or found.spec.backup is None:
            return False
        return bool(self._annotation or found.spec.cluster_id)

    @property
    def point_asked(self) -> bool:
        """Return True if a person asks for a point of the backup."""
        return bool(self._annotation)

    @property
    def _annotation(self) -> str:
        found = self._cluster()
        return "" if found is None else found.metadata.annotations.get(RESTORE_FROM_BACKUP, "")

    async def read(self) -> BackupOffer | None:
        """Return what the backup offers, up to the point that a person asks for. Return None if no
        backup is declared, or it is empty and no point is asked for."""
        text = self._annotation
        point = point_of(text) if text else NEWEST
        if point is None:
            why = (
                f"The LogCluster's annotation {RESTORE_FROM_BACKUP} has the invalid value "
                f"{text[:80]!r}: state newest, a time such as 2026-11-30T09:00:00Z, or a "
                "metadata offset."
            )
            return BackupOffer(why=why, asked=True)
        store = await self._place.store()
        if store is None:
            return None
        if isinstance(store, str):
            return BackupOffer(why=store, asked=bool(text))
        try:
            if not text and not await store.stored():
                return None
            found = await read_point(store, self._cluster_id, point)
        except NoPoint as error:
            return BackupOffer(why=str(error), asked=bool(text))
        except StoreUnavailable as error:
            why = f"The backup in {store.place} cannot be read: {error}."
            return BackupOffer(why=why, asked=bool(text))
        except Exception as error:  # a hostile place chooses what is read
            logger.exception(
                "internal error of the operator while it examined the metadata backup in %s; the "
                "backup is not used for a restore; please report the error with this traceback",
                store.place,
            )
            why = (
                f"The backup in {store.place} is not used, because of an internal error of the "
                f"operator: {type(error).__name__}. Please report the traceback in its log."
            )
            return BackupOffer(why=why, asked=bool(text))
        finally:
            await store.close()
        return BackupOffer(copy=found.copy, asked=bool(text))
