"""Logs that a thread opens anew: until that is over, nothing else uses their directories.

A log whose disk was full is read again by its path, in a thread, for as long as it is large.
Whatever the event loop did meanwhile to the old log (roll, cut, remove segments, rename its
directory for a topic that is gone) would be done to the same files.  So `full_disks` claims the
log, `ReplicaManager.is_here` is false for its partition, and checkpoints leave its lines as they
are.  A partition that goes has its log deleted, and one that takes over its directory's name is
opened, when the claim is given up.
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

logger = logging.getLogger("plimsoll.replicas")


class Reopening:
    """Owned by the event loop.  `put_off` has a partition opened later."""

    def __init__(
        self,
        store: LogStore,
        now_ms: Callable[[], int],
        put_off: Callable[[PartitionKey], None],
    ) -> None:
        # Those that are claimed: the store's checkpoints ask, too.
        self._claimed = store.reopening
        self._store = store
        self._now_ms = now_ms
        self._put_off = put_off
        # Of the claimed, those whose partitions are gone.
        self._dropped: set[Partition] = set()
        # Partitions that are opened once a claim is given up, by topic and index.
        self._waiting: dict[Partition, dict[PartitionKey, None]] = {}

    def __contains__(self, log: Log) -> bool:
        return bool(self._claimed) and (log.topic, log.index) in self._claimed

    @contextmanager
    def claim(self, log: Log) -> Iterator[None]:
        """Its directory is the caller's alone."""
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
        """Its partition is gone: it is deleted, at the end of its claim if there is one."""
        if log in self:
            self._dropped.add((log.topic, log.index))
        else:
            self._delete(log)

    def _delete(self, log: Log) -> None:
        try:
            self._store.delete_log(log, self._now_ms())
        except StorageError as error:
            logger.error("%s-%d will be deleted by a later start: %s", log.topic, log.index, error)

    def must_wait(self, key: PartitionKey, topic: str) -> bool:
        """Whether its directory's name is claimed; it is opened afterwards."""
        name = (topic, key.index)
        if name not in self._claimed:
            return False
        self._waiting.setdefault(name, {})[key] = None
        return True
