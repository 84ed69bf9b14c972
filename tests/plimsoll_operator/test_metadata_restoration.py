"""Attempts to restore a metadata log from brokers' copies: when the backup is read, and what it
may decide."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from tests.plimsoll_operator.test_group_commit import CLUSTER
from tests.plimsoll_operator.test_restore_decision import NEW, OLD, Chain, members, of_backup

from plimsoll_core.cluster.model import HistoryRestored
from plimsoll_core.cluster.records import ControllerChanged
from plimsoll_core.ids import BrokerId, ControllerEpoch
from plimsoll_core.messages.metadata_copy import OfferMetadataCopy
from plimsoll_operator.controller import metadata_restoration, restore_decision
from plimsoll_operator.controller.commit_queue import Restored, replay
from plimsoll_operator.controller.decision_clock import Clock
from plimsoll_operator.controller.metadata_restoration import (
    BackupOffer,
    Restoration,
    RestorationOptions,
)
from plimsoll_operator.controller.restore_decision import NotRestored, Restore, StoredLog
from plimsoll_operator.metalog.directory import DirectoryLog
from plimsoll_operator.metalog.interface import OpenedLog

EMPTIED = StoredLog()


@dataclass
class Attempt:
    """One restore of an empty log in `path`. `backup`: what the backup offers; `confirmed`: what a
    person has confirmed."""

    path: Path
    backup: BackupOffer | None = None
    hangs: bool = False
    asked: bool = False
    confirmed: str = ""
    reads: int = 0

    async def read(self) -> BackupOffer | None:
        self.reads += 1
        if self.hangs:
            await asyncio.Event().wait()
        return self.backup

    async def of(self, *chains: Chain, log: StoredLog = EMPTIED) -> Restore | NotRestored:
        """Return the outcome if brokers 1, 2 … offer these copies."""
        written = DirectoryLog(self.path, CLUSTER)
        restoration = Restoration(
            CLUSTER,
            written,
            Clock(),
            lambda: self.confirmed,
            RestorationOptions(
                quiet_ms=1_000,
                all_ms=2_000,
                read_backup=self.read,
                point_asked=lambda: self.asked,
            ),
        )
        brokers = [
            asyncio.ensure_future(self._send(restoration, number + 1, chain))
            for number, chain in enumerate(chains)
        ]
        try:
            return await restoration.run(log)
        finally:
            await asyncio.gather(*brokers)
            await written.close()

    async def _send(self, restoration: Restoration, broker_id: int, chain: Chain) -> None:
        data, part = chain.sent(), b""
        while True:
            offer = OfferMetadataCopy(
                cluster_id=CLUSTER,
                broker_id=BrokerId(broker_id),
                controller_epoch=chain.position.controller_epoch,
                position=chain.position,
                size=len(data) if part else 0,
                data=part,
            )
            wanted = await restoration.offered(offer)
            if not wanted.length:
                return
            assert wanted.start == 0
            part = data


async def test_certain_copies_are_restored_without_backup(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, hangs=True)
    found = await attempt.of(NEW, NEW, NEW)
    assert isinstance(found, Restore)
    assert found.image == NEW.image
    assert attempt.reads == 0


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
