"""Random lives of one log on a simulated disk, beside a model that knows what was promised.

Appends, rolls, flushes (also ones that other things overtake), checkpoints, retention by size and
age, cuts, discards, clean stops; kills in the midst of any write or sync, power cuts, flipped bits.
Source: the protocol's disk model.
"""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.plimsoll_broker.storage.conftest import a_batch
from tests.plimsoll_broker.storage.simulated import ORDERS, Cuts, Machine

from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.log_values import Flush
from plimsoll_core.replica.leader_epochs import EpochCache
from plimsoll_core.replica.producer_states import BATCHES_REMEMBERED
from plimsoll_sim.engine.process import ProcessDied
from plimsoll_wire.batches import BatchHeader, iter_headers

FAULTS = ("kill", "tear", "names", "uncut", "flip")
"""kill: in the midst of a write; a power cut that loses: content, names of files, cuts; bits."""

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=150)
numbers = st.integers(0, 2**32 - 1)
shares = st.integers(0, 100)


class Lives(RuleBasedStateMachine):
    """`batches`: what was appended and not cut, in order.  `promised`: up to where a power cut may
    take nothing.  `start_max`: up to where retention, a leader or a discard moved the start.
    `hw_max`: what was committed of what is there.  `torn`: half of it was discarded."""

    config = CONFIG
    faults = frozenset(FAULTS)
    without: frozenset[str] = frozenset()

    @initialize(number=numbers)
    def begin(self, number: int) -> None:
        self.rng = random.Random(number)
        self.machine = Machine(self.config, random.Random(number + 1))
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.term = 0
        self.clock = 0
        self.promised = self.start_max = self.hw_max = 0
        self.flush: Flush | None = None
        self.running, self.torn = True, False
        for _ in range(self.rng.randint(1, 2)):  # the first may be killed before it is durable
            self.log: Log = self.machine.log()

    def may(self, name: str) -> bool:
        return self.running and name not in self.without

    # --- what is there --------------------------------------------------------------------------

    @property
    def end(self) -> int:
        return self.batches[-1][0].next_offset if self.batches else self.model_start

    @property
    def model_start(self) -> int:
        return self.log.log_start_offset

    def look(self, *, ends: tuple[int, int]) -> None:
        """The log is what the model says, and ends within these bounds; then the model is what was
        found."""
        log = self.log
        low, high = ends
        start, end = log.log_start_offset, log.log_end_offset
        assert low <= end <= max(high, start), f"it ends at {end}, not within {low}..{high}"
        assert self.torn or not log.beginning_lost, "nothing is lost of its beginning"
        if not self.batches:  # then a discard that was interrupted may come undone
            self.start_max = max(self.start_max, start)
        assert start <= self.start_max, f"it starts at {start}, not up to {self.start_max}"
        self.batches = [each for each in self.batches if each[0].next_offset <= end]
        kept = [each for each in self.batches if each[0].next_offset > start]
        assert kept or start == end, "it holds what was never written"
        data, offset = b"", start
        while chunk := log.read(offset, 400, end):
            data += chunk
            offset = list(iter_headers(chunk))[-1].next_offset
        assert data == b"".join(data for _, data in kept), "it holds something else"
        assert offset == end
        terms = EpochCache((header.leader_epoch, header.base_offset) for header, _ in kept)
        terms.truncate_from_start(start, end)
        held = EpochCache(log.epochs.entries)
        held.truncate_from_end(end)
        assert all(first >= start - 1 for _, first in held.entries), "terms from below its start"
        held.truncate_from_start(start, end)  # once it was empty, and knew what it had held
        assert held.entries == terms.entries or not kept, "terms"
        known = {entry.last_offset for entry in log.producers.snapshot()}
        assert known <= {h.last_offset for h, _ in self.batches}, "it knows of what is not there"
        assert known >= self.remembered(kept), "and not of what is"
        mark = self.machine.store.high_watermark(log)
        assert mark <= max(self.hw_max, start), f"high watermark {mark}, committed {self.hw_max}"

    def remembered(self, kept: list[tuple[BatchHeader, bytes]]) -> set[int]:
        """The last offsets of the batches that identify retries."""
        return {header.last_offset for header, _ in kept[-BATCHES_REMEMBERED:]}

    # --- what a broker does ---------------------------------------------------------------------

    @precondition(lambda self: self.running)
    @rule(count=st.integers(1, 6), late=st.integers(0, 3), crash=st.integers(0, 30))
    def append(self, count: int, late: int, crash: int) -> None:
        before = self.log.log_end_offset
        made = []
        for number in range(count):
            base = before + 5 * number
            self.clock += 10
            stamp = self.clock - 100 * late
            data = a_batch(
                base, 5, epoch=self.term, size=20 + 10 * late, producer_id=7, producer_epoch=0,
                base_sequence=base & 0xFFFFFF, base_timestamp=stamp, max_timestamp=stamp,
            )  # fmt: skip
            made.append((next(iter(iter_headers(data))), data))
        whole = b"".join(data for _, data in made)
        if self.doing(crash, lambda: self.log.append(whole, [header for header, _ in made])):
            self.batches += made
            return
        self.batches += made
        self.after_crash(self.promised, self.batches[-1][0].next_offset, self.rng.random() < 0.5)

    @precondition(lambda self: self.running)
    @rule()
    def new_term(self) -> None:
        self.term += 1

    @precondition(lambda self: self.running)
    @rule(crash=st.integers(0, 30))
    def roll(self, crash: int) -> None:
        self.harmless(crash, lambda: self.log.roll())

    @precondition(lambda self: self.running)
    @rule(checkpoint=st.booleans(), crash=st.integers(0, 30))
    def flush_now(self, checkpoint: bool, crash: int) -> None:
        self.harmless(crash, lambda: self.log.flush(checkpoint=checkpoint))

    @precondition(lambda self: self.running and self.flush is None)
    @rule(checkpoint=st.booleans())
    def begin_flush(self, checkpoint: bool) -> None:
        self.flush = self.log.begin_flush(checkpoint=checkpoint)

    @precondition(lambda self: self.running and self.flush is not None)
    @rule(crash=st.integers(0, 30))
    def end_flush(self, crash: int) -> None:
        flush, self.flush = self.flush, None

        def work() -> None:
            assert flush is not None
            flush.sync()
            self.log.flushed(flush)

        self.harmless(crash, work)

    @precondition(lambda self: self.running)
    @rule(crash=st.integers(0, 30))
    def checkpoint(self, crash: int) -> None:
        store = self.machine.store

        def work() -> None:
            store.checkpoint_recovery_points()
            store.checkpoint_log_starts()
            self.log.prune_snapshots()

        self.harmless(crash, work)

    @precondition(lambda self: self.may("commit"))
    @rule(share=shares)
    def commit(self, share: int) -> None:
        mark = self.log.log_end_offset * share // 100
        self.hw_max = max(self.hw_max, mark)
        self.machine.store.checkpoint_high_watermarks({ORDERS: self.hw_max})

    @precondition(lambda self: self.may("retain_by_size"))
    @rule(keep=st.integers(0, 3), crash=st.integers(0, 30), later=st.booleans())
    def retain_by_size(self, keep: int, crash: int, later: bool) -> None:
        self.log.config = replace(self.config, retention_ms=None, retention_bytes=250 * keep)
        self.retain(crash, later)

    @precondition(lambda self: self.may("retain_by_age"))
    @rule(age=st.integers(0, 200), crash=st.integers(0, 30), later=st.booleans())
    def retain_by_age(self, age: int, crash: int, later: bool) -> None:
        self.log.config = replace(self.config, retention_ms=age)
        before = self.log.log_start_offset
        if self.retain(crash, later):
            gone = [h for h, _ in self.batches if before <= h.base_offset < self.model_start]
            young = [h.base_offset for h in gone if h.max_timestamp >= self.clock - age]
            assert young == [], "deleted before its time"

    def retain(self, crash: int, later: bool) -> bool:
        """`later`: what is below the start goes with another rule."""
        mark = self.log.log_end_offset
        before = self.start_max
        self.start_max = max(self.start_max, mark)

        def work() -> None:
            self.log.apply_retention(self.clock, mark)
            if not later:
                self.machine.remove(synced=self.rng.random() < 0.5)

        if self.harmless(crash, work):
            self.start_max = max(before, self.log.log_start_offset)
            return True
        return False

    @precondition(lambda self: self.running)
    @rule(count=st.integers(1, 3), crash=st.integers(0, 30))
    def remove_below_what_is_saved(self, count: int, crash: int) -> None:
        self.harmless(crash, lambda: self.machine.remove_below_saved_start(count))

    @precondition(lambda self: self.running)
    @rule(crash=st.integers(0, 30))
    def remove_the_oldest_of_a_full_disk(self, crash: int) -> None:
        def work() -> None:
            self.log.unsynced.sync_names()
            self.machine.remove_oldest()

        self.harmless(crash, work)

    @precondition(lambda self: self.may("leader_moved_its_start"))
    @rule(share=shares)
    def leader_moved_its_start(self, share: int) -> None:
        starts = [h.base_offset for h, _ in self.batches if h.base_offset > self.model_start]
        if starts:
            self.log.advance_log_start(starts[len(starts) * share // 101])
            self.start_max = max(self.start_max, self.log.log_start_offset)

    @precondition(lambda self: self.may("truncate"))
    @rule(share=shares, crash=st.integers(0, 30))
    def truncate(self, share: int, crash: int) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = start + (end - start) * share // 100
        self.term += 1
        self.cut(offset, crash, lambda: (self.log.truncate_to(offset), self.log.settle()))

    def cut(self, offset: int, crash: int, work) -> None:
        before = self.log.log_end_offset
        floor = max((h.next_offset for h, _ in self.batches if h.next_offset <= offset), default=0)
        self.promised = min(self.promised, floor)
        if self.doing(crash, work):
            self.hw_max = min(self.hw_max, floor)
            self.batches = [each for each in self.batches if each[0].next_offset <= offset]
            self.look(ends=(floor, offset))
            self.promised = self.log.recovery_point
            return
        self.after_crash(min(self.promised, floor), before, self.rng.random() < 0.5, kill_min=floor)
        self.hw_max = min(self.hw_max, self.log.log_end_offset)

    @precondition(lambda self: self.may("discard"))
    @rule(back=st.integers(0, 30), ahead=st.booleans(), crash=st.integers(0, 30))
    def discard(self, back: int, ahead: bool, crash: int) -> None:
        """Below its own start, after an unclean election; or where the leader begins."""
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = end + back if ahead else max(start - back, 0)
        self.term += 1
        self.promised = 0
        self.start_max = max(self.start_max, offset)
        if self.doing(crash, lambda: (self.log.discard_to(offset), self.log.settle())):
            self.batches.clear()
            self.torn, self.start_max = False, offset
            self.hw_max = min(self.hw_max, offset)
            self.look(ends=(offset, offset))
            self.promised = self.log.recovery_point
            return
        # A power cut may leave a later file alone.
        self.torn, self.start_max = True, max(self.start_max, end)
        self.after_crash(0, max(end, offset), self.rng.random() < 0.5, kill_min=0)
        self.hw_max = min(self.hw_max, self.log.log_end_offset)
        if not self.batches:
            self.start_max = self.log.log_start_offset

    # --- how lives end --------------------------------------------------------------------------

    def doing(self, crash: int, work) -> bool:
        """False: the process was killed in the midst of it."""
        volume = self.machine.volume
        volume.crash_in = crash if "kill" in self.faults and crash < 20 else None
        try:
            work()
        except ProcessDied:
            return False
        finally:
            volume.crash_in = None
        return True

    def harmless(self, crash: int, work) -> bool:
        """Something that neither adds nor cuts records."""
        if self.doing(crash, work):
            self.promised = max(self.promised, self.log.recovery_point)
            return True
        self.after_crash(self.promised, self.log.log_end_offset, self.rng.random() < 0.5)
        return False

    def after_crash(self, low: int, high: int, power: bool, kill_min: int | None = None) -> None:
        """`low`: what a power cut must leave; a kill leaves everything that was there before."""
        if power and self.faults & {"tear", "names", "uncut"}:
            self.machine.lose_power(Cuts(self.rng, self.faults))
        elif kill_min is not None:
            low = kill_min
        else:
            low = min(self.log.log_end_offset, high)
        self.reopen(low, high)

    def reopen(self, low: int, high: int) -> None:
        if self.log.log_start_offset == self.log.log_end_offset:
            low = 0  # without a record there is nothing to promise
        self.flush = None
        self.log = self.machine.log()
        self.look(ends=(low, high))
        self.promised = min(self.promised, self.log.log_end_offset)
        # What a power cut took is committed no more, here.
        self.hw_max = min(self.hw_max, self.log.log_end_offset)
        assert self.log.recovery_point <= self.log.log_end_offset

    @precondition(lambda self: self.running)
    @rule()
    def kill(self) -> None:
        end = self.log.log_end_offset
        self.reopen(end, end)

    @precondition(lambda self: self.running and self.faults & {"tear", "names", "uncut"})
    @rule()
    def power_cut(self) -> None:
        end = self.log.log_end_offset
        self.machine.lose_power(Cuts(self.rng, self.faults))
        self.reopen(self.promised, end)

    @precondition(lambda self: self.running)
    @rule()
    def clean_stop(self) -> None:
        end = self.log.log_end_offset
        assert self.machine.store.close(7, {ORDERS: min(self.hw_max, end)})
        self.reopen(end, end)
        self.promised = end

    @precondition(lambda self: self.running and "flip" in self.faults)
    @rule(share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), clean=st.booleans())
    def flip(self, share: float, bit: int, clean: bool) -> None:
        """Of a file of the log, while no process uses it."""
        end = self.log.log_end_offset
        if clean:
            assert self.machine.store.close(7, {ORDERS: min(self.hw_max, end)})
        nodes = [
            (path, node)
            for suffix in (".log", ".index", ".timeindex", ".snapshot", "-checkpoint")
            for path, node in self.machine.volume.nodes(self.machine.store.directory, suffix)
            if node.data and ("/orders-3/" in path)
        ]
        if not nodes:
            return
        path, node = nodes[int(share * len(nodes))]
        at = int(share * len(nodes) % 1 * len(node.data))
        node.data[at] ^= 1 << bit
        try:
            log = self.machine.log()
        except StorageError as error:
            if not clean or error.fault is not StorageFault.CORRUPT:
                raise
            log = self.machine.log()
        self.log, self.flush = log, None
        if not (path.endswith(".log") and self.may_be_a_term(path, at)):
            self.read_what_is_there(end)
        offset = max(log.log_end_offset, end)
        self.log.discard_to(offset)  # whatever was cut comes from the others
        self.log.settle()
        self.batches.clear()
        self.term += 1
        self.start_max = self.promised = offset
        self.hw_max = min(self.hw_max, offset)

    def may_be_a_term(self, path: str, at: int) -> bool:
        """Whether that byte is a leader epoch's: of those not all can be told from right ones."""
        base, position = int(path[-24:-4]), 0
        for header, _ in self.batches:
            if header.base_offset >= base:
                if position + 12 <= at < position + 16:
                    return True
                position += header.length
        return False

    def read_what_is_there(self, end: int) -> None:
        """No byte that was not written there, no record passed over."""
        log = self.log
        assert log.log_end_offset <= end, f"it ends at {log.log_end_offset}, not at {end}"
        by_offset = {header.base_offset: data for header, data in self.batches}
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            try:
                chunk = log.read(offset, 1, log.log_end_offset)
            except StorageError as error:
                if error.fault is not StorageFault.CORRUPT:
                    raise
                return
            header = next(iter(iter_headers(chunk)))
            assert chunk == by_offset.get(header.base_offset), "that was never written there"
            assert header.base_offset <= offset < header.next_offset, "records were passed over"
            offset = header.next_offset
