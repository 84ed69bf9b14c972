"""Reopening: claims on logs that a thread opens anew. During a claim nothing else uses the log's
directory.

After a full disk a log is read again by its path, in a thread, which takes long if the log is
large. Anything that the event loop did meanwhile to the old log (roll, truncate, remove segments,
rename its directory for a deleted topic) would affect the same files. So `full_disks` claims the
log, `ReplicaManager.is_here` is False for its partition, and checkpoints keep its lines. When the
claim ends, the log of a dropped partition is deleted, and a partition that takes over the
directory's name is opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from plimsoll_broker.storage.checkpoint_formats import Partition
from plimsoll_broker.storage.disk import StorageError
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_store import LogStore
from plimsoll_core.cluster.model import PartitionKey

logger = logging.getLogger("plimsoll.reopening_claims")


class Reopening:
    """Keeps other components away from a log's directory while a thread opens the log anew.
    `put_off`: called to have a partition opened later, by `Opener`."""

    def __init__(
        self,
        store: LogStore,
        now_ms: Callable[[], int],
        put_off: Callable[[PartitionKey], None],
    ) -> None:
        # The claimed logs; the store's checkpoints use the same set.
        self._claimed = store.reopening
        self._store = store
        self._now_ms = now_ms
        self._put_off = put_off
        # Claimed logs whose partitions have been dropped.
        self._dropped: set[Partition] = set()
        # Partitions to open when a claim ends, by topic and index.
        self._waiting: dict[Partition, dict[PartitionKey, None]] = {}

    def __contains__(self, log: Log) -> bool:
        return bool(self._claimed) and (log.topic, log.index) in self._claimed

    @contextmanager
    def claim(self, log: Log) -> Iterator[None]:
        """Reserve the log's directory for the caller within a `with` block. At its end, delete the
        log if its partition was dropped, and have waiting partitions opened."""
        name = (log.topic, log.index)
        assert name not in self._claimed, "one reopens it at a time"
        self._claimed.add(name)
        try:
            yield
        finally:
            self._claimed.remove(name)
            if name in self._dropped:
                self._dropped.remove(name)
                self._delete(log)
            for key in self._waiting.pop(name, {}):
                self._put_off(key)

    def drop(self, log: Log) -> None:
        """Delete the log of a dropped partition: now, or at the end of its claim if it is
        claimed."""
        if log in self:
            self._dropped.add((log.topic, log.index))
        else:
            self._delete(log)

    def _delete(self, log: Log) -> None:
        try:
            self._store.delete_log(log, self._now_ms())
        except StorageError as error:
            logger.error(
                "this broker cannot delete the log of %s-%d, which takes disk space until the "
                "broker deletes it at its next start; restart the broker to free the space: %s",
                *(log.topic, log.index, error),
            )

    def must_wait(self, key: PartitionKey, topic: str) -> bool:
        """If another log is being reopened in the directory of this partition (topic name and
        index), have the partition opened once that ends, and return True. Return False if it may be
        opened now."""
        name = (topic, key.index)
        if name not in self._claimed:
            return False
        self._waiting.setdefault(name, {})[key] = None
        return True
