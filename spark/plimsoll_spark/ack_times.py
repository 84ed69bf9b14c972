"""Measures the acks of a continuous run for its budget: their latency, and the times in which
records of a partition waited and none was acknowledged. Pure.

Called by `continuous` once for each step; a stall may span steps, and belongs to the window in
which an ack ends it. The time until a producer's first ack is its connecting: it is no stall, and
records that were sent in it have no latency here, since each driver has producers of its own.
"""

from __future__ import annotations

import msgspec
import numpy as np

from plimsoll_spark.arrays import Floats
from plimsoll_spark.ledger import LedgerRows
from plimsoll_spark.values import Stall

PRODUCERS_KEPT = 64


class AckTimes(msgspec.Struct, kw_only=True):
    """What one step must know of the steps before it. `last_ms`: the time of the last ack, by
    partition; `first_ms`: the time of the first ack of each of the newest producers; in
    milliseconds since 1970."""

    last_ms: dict[int, float] = {}
    first_ms: dict[int, float] = {}

    def take(self, rows: LedgerRows) -> tuple[Floats, list[Stall]]:
        """Take the acks among these rows of the ledger. Return the latencies of those that count,
        in milliseconds, and the longest stall that ended in each partition."""
        rows = rows.only(rows.acked & (rows.partition >= 0))
        connected_ms = self._connected(rows)
        counts = rows.send_ms >= connected_ms
        stalls = []
        for partition in np.unique(rows.partition).tolist():
            mine = rows.partition == partition
            found = self._stall(partition, rows.only(mine), connected_ms[mine])
            if found is not None:
                stalls.append(found)
        return (rows.settled_ms - rows.send_ms)[counts], stalls

    def _connected(self, rows: LedgerRows) -> Floats:
        """Return, for each row, when its producer was first acknowledged."""
        names, place = np.unique(rows.producer, return_inverse=True)
        for name in names.tolist():
            if name not in self.first_ms:
                self.first_ms[name] = float(rows.settled_ms[rows.producer == name].min())
        found = np.array([self.first_ms[name] for name in names.tolist()], np.float64)
        for name in sorted(self.first_ms)[:-PRODUCERS_KEPT]:
            del self.first_ms[name]
        return found[place]

    def _stall(self, partition: int, rows: LedgerRows, connected_ms: Floats) -> Stall | None:
        """Return the longest stall that acks of one partition end; None if there is none."""
        order = np.argsort(rows.settled_ms, kind="stable")
        settled, send = rows.settled_ms[order], rows.send_ms[order]
        waiting = np.minimum.accumulate(send[::-1])[::-1]  # the oldest record that waits
        before = self.last_ms.get(partition, 0.0)
        last = np.maximum.accumulate(np.concatenate(([before], settled[:-1])))
        since = np.maximum(np.maximum(last, waiting), connected_ms[order])
        self.last_ms[partition] = max(before, float(settled[-1]))
        longest = int(np.argmax(settled - since))
        milliseconds = float(settled[longest] - since[longest])
        if milliseconds <= 0:
            return None
        return Stall(
            partition=partition,
            milliseconds=round(milliseconds, 1),
            from_ms=float(since[longest]),
            to_ms=float(settled[longest]),
        )
