"""Measures for how long ISRs of the topic are not full, while a run lasts.

Called by `run` if the budget states a limit. Asks for the topic's metadata once a second, in a
thread. The time counts from the first answer that shows an ISR that is not full to the last one, so
that a slow watcher never makes it longer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType

from confluent_kafka import KafkaException

EVERY_S = 1.0
Missing = Callable[[], Mapping[int, int]]
"""Returns how many replicas of each partition are not in its ISR. Raises KafkaException."""

log = logging.getLogger(__name__)


class IsrWatch:
    """Asks for the ISRs every `EVERY_S` seconds, in a thread, inside `with`. `missing`: returns the
    replicas outside each ISR; `limit_s`: the budget's limit; `longest_s`: the longest time so far,
    in seconds, for which one ISR was seen not to be full."""

    def __init__(
        self, missing: Missing, limit_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._missing = missing
        self._limit_s = limit_s
        self._clock = clock
        self._since: dict[int, float] = {}
        self.longest_s = 0.0
        self._was_answered = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="isr-watch", daemon=True)

    def __enter__(self) -> IsrWatch:
        self._thread.start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def look(self) -> bool:
        """Ask for the ISRs once, and update `longest_s`. Return True if every ISR is full. Without
        an answer nothing changes, and the result is that of the last answer."""
        try:
            missing = self._missing()
        except KafkaException as error:
            log.info(
                "the Verification's driver pod cannot read the ISRs of the topic and tries "
                "again; until then the last known ISRs count: %s",
                error,
            )
            return not self._since
        now_s, self._was_answered = self._clock(), True
        for partition, count in missing.items():
            if count == 0:
                self._since.pop(partition, None)
                continue
            since_s = self._since.setdefault(partition, now_s)
            self.longest_s = max(self.longest_s, now_s - since_s)
        return not self._since

    def taken(self) -> float | None:
        """Return `longest_s`, None without an answer since the last call, and begin it anew. An ISR
        that is still not full goes on counting from the time at which that was first seen."""
        was_answered, self._was_answered = self._was_answered, False
        longest_s, self.longest_s = self.longest_s, 0.0
        return longest_s if was_answered else None

    def at_the_end(self) -> float | None:
        """Return `longest_s`. Return None if there was no answer, or if it is within the limit and
        an ISR was not full at the last answer: how long that lasts is not known."""
        if self.longest_s <= self._limit_s and (self._since or not self._was_answered):
            return None
        return self.longest_s

    def settle(self, until_s: float) -> None:
        """Wait until every ISR is full, `longest_s` exceeds the limit, or the clock (seconds,
        monotonic) shows `until_s`."""
        while self._since and self.longest_s <= self._limit_s and self._clock() < until_s:
            if self._ended.wait(EVERY_S / 4):
                return

    def _watch(self) -> None:
        while True:
            self.look()
            if self._ended.wait(EVERY_S):
                return
