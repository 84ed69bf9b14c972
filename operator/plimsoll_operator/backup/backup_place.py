"""The place that a LogCluster's `spec.backup` asks for, and the point that a person asks for."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from pathlib import Path
from uuid import UUID

from plimsoll_operator.api.backup import Backup, is_point
from plimsoll_operator.api.conditions import milliseconds
from plimsoll_operator.api.due_times import DueTimes
from plimsoll_operator.api.evidence import S3
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.backup.backup_objects import NEWEST, Point
from plimsoll_operator.backup.backup_stores import BackupStore, DirectoryBackup
from plimsoll_operator.backup.place_owner import PlaceOwner
from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.resources import SECRETS

NO_VOLUME = (
    "The operator's pods mount no volume for backups: set backup.persistentVolumeClaim of the "
    "chart, or spec.backup.s3."
)

MakeBucket = Callable[[S3, str, Mapping[str, str]], BackupStore]
"""Function that makes the store for a bucket: its declaration, the directory of the cluster below
the prefix, and the content of its Secret."""


class BackupPlace:
    """The place of one LogCluster's backup, by its present spec. `directory`: the volume that the
    process mounts for backups, None if it mounts none. `make_bucket`: None if the process has no
    buckets."""

    def __init__(
        self,
        cluster: Callable[[], LogCluster | None],
        cluster_id: UUID,
        kube: KubeApi,
        directory: Path | None,
        make_bucket: MakeBucket | None,
    ) -> None:
        self._cluster = cluster
        self._cluster_id = cluster_id
        self._kube = kube
        self._directory = directory
        self._make_bucket = make_bucket

    @property
    def wanted(self) -> Backup | None:
        found = self._cluster()
        return None if found is None else found.spec.backup

    @property
    def keep_ms(self) -> int:
        return (self.wanted or Backup()).keep_ms

    @property
    def owner(self) -> PlaceOwner:
        found = self._cluster()
        if found is None:
            return PlaceOwner(uid="", key="")
        return PlaceOwner(uid=found.metadata.uid, key="/".join(found.key))

    @property
    def drills(self) -> DueTimes:
        return (self.wanted or Backup()).drills

    async def store(self) -> BackupStore | str | None:
        """Return the place, a sentence that says why it cannot be used, or None if the spec asks
        for no backup."""
        found = self._cluster()
        if found is None or found.spec.backup is None:
            return None
        if found.spec.backup.s3 is not None:
            return await self._bucket(found, found.spec.backup.s3)
        if self._directory is None:
            return NO_VOLUME
        # A LogCluster of another namespace reaches no backup by stating its cluster id.
        namespace = found.metadata.namespace
        return DirectoryBackup(self._directory / namespace / str(self._cluster_id))

    async def _bucket(self, found: LogCluster, wanted: S3) -> BackupStore | str:
        if self._make_bucket is None:
            return (
                "spec.backup.s3 is set, but this operator process cannot write backups to buckets."
            )
        namespace, name = found.metadata.namespace, wanted.secret
        try:
            secret = await self._kube.get(SECRETS, namespace, name)
            data = secret.get("data") or {}
            login = {
                key: base64.b64decode(one, validate=True).decode() for key, one in data.items()
            }
            return self._make_bucket(wanted, str(self._cluster_id), login)
        except NotFound:
            return (
                f"Secret {name}, which spec.backup.s3 names, does not exist in namespace "
                f"{namespace}. Create it, or correct spec.backup.s3."
            )
        except ApiError as error:
            return (
                f"Secret {name}, which spec.backup.s3 names, cannot be read: {error.message}. The "
                "operator tries again."
            )
        except (ValueError, binascii.Error) as error:
            return f"Secret {name} cannot be used for spec.backup.s3: {error}."


def point_of(text: str) -> Point | None:
    """Return the point that the annotation `plimsoll.dev/restore-from-backup` asks for, or None if
    its value is none."""
    if not is_point(text):
        return None
    if text == "newest":
        return NEWEST
    if text.isdecimal():
        return Point(offset=int(text))
    # The time is stated to the second: what was stored within it belongs to the point.
    return Point(at_ms=milliseconds(text) + 999)
