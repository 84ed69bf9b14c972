"""Attempts to restore a metadata log from brokers' copies: when the backup is read, and what it
may decide."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator.test_group_commit import CLUSTER, a_registration
from tests.plimsoll_operator.test_restore_decision import NEW, OLD, Chain, members, of_backup

from plimsoll_core.cluster.model import HistoryRestored
from plimsoll_core.cluster.records import ControllerChanged
from plimsoll_core.ids import BrokerId, ControllerEpoch
from plimsoll_core.messages.metadata_copy import OfferMetadataCopy
from plimsoll_operator.controller import metadata_restoration, restore_decision
from plimsoll_operator.controller.commit_queue import Restored, replay
from plimsoll_operator.controller.decision_clock import Clock
from plimsoll_operator.controller.metadata_restoration import (
    EPOCHS_ABOVE,
    BackupOffer,
    Restoration,
    RestorationOptions,
)
from plimsoll_operator.controller.restore_decision import (
    NotRestored,
    Restore,
    RestoreCase,
    StoredLog,
    Unsure,
)
from plimsoll_operator.metalog.directory import DirectoryLog
from plimsoll_operator.metalog.interface import OpenedLog

EMPTIED = StoredLog()


@dataclass
class Attempt:
    """One restore of an empty log in `path`. `backup`: what the backup offers; `confirmed`: what a
    person has confirmed; `reported`: positions that brokers report and offer no copy for; `named`:
    the controller epoch that offers name, None for that of the copy."""

    path: Path
    backup: BackupOffer | None = None
    hangs: bool = False
    asked: bool = False
    confirmed: str = ""
    expected: frozenset[BrokerId] = frozenset()
    quiet_ms: int = 1_000
    reads: int = 0
    reported: dict[int, Chain] = field(default_factory=dict)
    named: ControllerEpoch | None = None

    async def read(self) -> BackupOffer | None:
        self.reads += 1
        if self.hangs:
            await asyncio.Event().wait()
        return self.backup

    async def of(self, *chains: Chain, log: StoredLog = EMPTIED) -> Restore | NotRestored:
        """Return the outcome if brokers 1, 2 … offer these copies."""
        written = DirectoryLog(self.path, CLUSTER)
        restoration = self.begun(written)
        for number, chain in self.reported.items():
            request = replace(a_registration(number), position=chain.position)
            restoration.hear(request, ControllerEpoch(0))
        brokers = [
            asyncio.ensure_future(self.send(restoration, number + 1, chain))
            for number, chain in enumerate(chains)
        ]
        try:
            return await restoration.run(log)
        finally:
            await asyncio.gather(*brokers)
            await written.close()

    async def send(self, restoration: Restoration, broker_id: int, chain: Chain) -> None:
        data, part = chain.sent(), b""
        while True:
            offer = OfferMetadataCopy(
                cluster_id=CLUSTER,
                broker_id=BrokerId(broker_id),
                controller_epoch=self.named or chain.position.controller_epoch,
                position=chain.position,
                size=len(data) if part else 0,
                data=part,
            )
            wanted = await restoration.offered(offer)
            if not wanted.length:
                return
            assert wanted.start == 0
            part = data

    def begun(self, log: DirectoryLog) -> Restoration:
        return Restoration(
            CLUSTER,
            log,
            Clock(),
            lambda: self.confirmed,
            RestorationOptions(
                quiet_ms=self.quiet_ms,
                all_ms=2 * self.quiet_ms,
                read_backup=self.read,
                point_asked=lambda: self.asked,
            ),
            self.expected,
        )


async def test_certain_copies_are_restored_without_backup(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, hangs=True)
    found = await attempt.of(NEW, NEW, NEW)
    assert isinstance(found, Restore)
    assert found.image == NEW.image
    assert attempt.reads == 0


async def test_broker_that_reported_position_is_waited_for(tmp_path: Path) -> None:
    """It offers its copy a moment later, and says then if it acted on a decision that is lost."""
    found = await Attempt(tmp_path, reported={3: NEW}).of(NEW, NEW)
    assert isinstance(found, NotRestored)
    assert found.reasons == (Unsure.AWAY,)
    assert "broker 3" in found.sentence
    assert isinstance(await Attempt(tmp_path, reported={3: NEW}).of(NEW, NEW, NEW), Restore)


@pytest.mark.parametrize(("named", "followed"), [(700, True), (2**62, False)])
async def test_forged_controller_epoch_is_not_followed(
    tmp_path: Path, named: int, followed: bool
) -> None:
    attempt = Attempt(tmp_path, named=ControllerEpoch(named))
    assert isinstance(await attempt.of(NEW, NEW, NEW), Restore)
    log = DirectoryLog(tmp_path, CLUSTER)
    opened = await log.open()
    await log.close()
    assert opened.snapshot is not None
    highest = named if followed else NEW.position.controller_epoch
    assert opened.snapshot.controller_epoch == highest + EPOCHS_ABOVE


@pytest.mark.parametrize("asked", [False, True])
async def test_backup_that_hangs_ends_with_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    monkeypatch.setattr(metadata_restoration, "BACKUP_S", 0.01)
    found = await Attempt(tmp_path, hangs=True, asked=asked).of(*([NEW] * 3 if asked else [OLD]))
    assert isinstance(found, NotRestored)
    assert "could not be read within" in found.sentence


async def test_point_below_brokers_copies_offers_both_ways(tmp_path: Path) -> None:
    """Brokers agree, and a person asks for an older point."""
    attempt = Attempt(tmp_path, backup=BackupOffer(copy=of_backup(OLD), asked=True), asked=True)
    found = await attempt.of(NEW, NEW, NEW)
    assert isinstance(found, NotRestored)
    (choice,) = found.choices
    assert choice.end_offset == NEW.image.next_offset
    remove, delete = (found.sentence.index(part) for part in ("remove the annotation", "delete"))
    assert remove < delete
    attempt.confirmed = choice.value
    confirmed = await attempt.of(NEW, NEW, NEW)
    assert isinstance(confirmed, Restore)
    assert confirmed.image == NEW.image


async def test_annotation_of_restored_point_is_ignored(tmp_path: Path) -> None:
    """Brokers followed the history that began with it, and the log is lost again."""
    backup = of_backup(OLD)
    row = HistoryRestored(
        at_ms=1,
        end_offset=backup.image.next_offset,
        digest=backup.digest,
        from_backup=True,
        confirmed=True,
    )
    opening = ControllerChanged(
        cause="TakeOver",
        controller_epoch=ControllerEpoch(1_000_002),
        identity="o",
        term_id="later",
        restored=row,
    )
    chain = OLD.add(opening, epoch=1_000_002)
    attempt = Attempt(tmp_path, backup=BackupOffer(copy=backup, asked=True), asked=True)
    found = await attempt.of(chain, chain, chain)
    assert isinstance(found, Restore)
    assert found.image == chain.image
    assert not found.from_backup


async def test_log_is_replayed_once_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer of a broker is judged anew; what the log holds is not."""
    replays: list[int] = []

    def counted(opened: OpenedLog, cluster_id: UUID) -> Restored:
        replays.append(threading.get_ident())
        return replay(opened, cluster_id)

    for module in (metadata_restoration, restore_decision):
        monkeypatch.setattr(module, "replay", counted)
    longer = NEW.add(members(1, 2), epoch=2)
    found = await Attempt(tmp_path).of(NEW, longer, log=StoredLog(opened=OLD.opened))
    assert isinstance(found, NotRestored)
    assert len(replays) == 1
    assert replays[0] != threading.get_ident()


ALL = frozenset(BrokerId(b) for b in (1, 2, 3))
LONG_MS = 3_600_000
WAIT_S = 30


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once a decision had a copy."""
    event = asyncio.Event()

    def noting(case: RestoreCase) -> Restore | NotRestored:
        if case.copy is not None:
            event.set()
        return restore_decision.decide_restore(case)

    monkeypatch.setattr(metadata_restoration, "decide_restore", noting)
    return event


async def test_empty_log_waits_for_no_further_answer(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, expected=ALL, quiet_ms=LONG_MS)
    async with asyncio.timeout(WAIT_S):
        found = await attempt.of(NEW, OLD, OLD)
    assert isinstance(found, NotRestored)
    assert found.reasons == (Unsure.ONE_HOLDER,)
    attempt.confirmed = found.choice
    async with asyncio.timeout(WAIT_S):
        assert isinstance(await attempt.of(NEW, OLD, OLD), Restore)


async def test_brokers_without_metadata_are_not_waited_for(tmp_path: Path) -> None:
    """The backup is read at once, not only when time is up for copies that no broker has."""
    attempt = Attempt(tmp_path, expected=ALL, quiet_ms=LONG_MS)
    log = DirectoryLog(tmp_path, CLUSTER)
    restoration = attempt.begun(log)
    for broker_id in sorted(ALL):
        none = replace(NEW.position, applied_offset=0, nonce=None)
        restoration.hear(replace(a_registration(broker_id), position=none), ControllerEpoch(0))
    async with asyncio.timeout(WAIT_S):
        found = await restoration.run(EMPTIED)
    assert isinstance(found, NotRestored)
    assert attempt.reads == 1
    await log.close()


async def test_empty_log_waits_for_copy_after_answer(tmp_path: Path, judged: asyncio.Event) -> None:
    attempt = Attempt(tmp_path, expected=ALL, quiet_ms=LONG_MS)
    log = DirectoryLog(tmp_path, CLUSTER)
    restoration = attempt.begun(log)
    registered = replace(a_registration(3), position=NEW.position)
    restoration.hear(registered, int(NEW.position.controller_epoch))
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as brokers:
        running = brokers.create_task(restoration.run(EMPTIED))
        for broker_id in (1, 2):
            brokers.create_task(attempt.send(restoration, broker_id, OLD))
        await judged.wait()
        brokers.create_task(attempt.send(restoration, 3, NEW))
    found = running.result()
    assert isinstance(found, NotRestored)
    assert found.choices[0].end_offset == NEW.image.next_offset
    await log.close()


async def test_confirmation_ends_the_wait(tmp_path: Path, judged: asyncio.Event) -> None:
    attempt = Attempt(tmp_path, expected=ALL, quiet_ms=LONG_MS)
    log = DirectoryLog(tmp_path, CLUSTER)
    restoration = attempt.begun(log)
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as brokers:
        running = brokers.create_task(restoration.run(EMPTIED))
        brokers.create_task(attempt.send(restoration, 1, NEW))
        await judged.wait()
        attempt.confirmed = NEW.proven().choice
        restoration.look_again()
    assert isinstance(running.result(), Restore)
    await log.close()
