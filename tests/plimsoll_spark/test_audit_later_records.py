"""Cleaners go on while an audit reads a compacted topic: what newer records explain is no loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.plimsoll_spark.replica_model import audited, record, replica, sealed

from plimsoll_spark.audit_range import RangeAudit
from plimsoll_spark.broker_connection import Fetched
from plimsoll_spark.replica_reader import Why

END = 20
Audit = Callable[..., RangeAudit]


def keyed(base: int, key: bytes, value: bytes | None = b"v") -> bytes:
    return sealed(base, [record(0, key, value)])


OLDER = [keyed(0, b"hot"), *(keyed(at, b"k%d" % at) for at in range(1, END))]


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Audit:
    """Audits up to the end that the partition had when the audit began, one batch a fetch."""
    monkeypatch.setattr("plimsoll_spark.replica_reader.FETCH_BYTES", 1)
    item = {"first": 0, "end": END, "compacted": True, "record_by_record": True}
    return lambda held: audited(monkeypatch, tmp_path, held, **item)


def test_key_superseded_behind_audits_end_is_healthy(audit: Audit) -> None:
    newer = keyed(END, b"hot")
    found = audit([replica([*OLDER, newer]), replica([*OLDER[1:], newer])])
    assert (found.findings, found.unread) == ((), ())


def test_tombstone_that_went_already_is_healthy(audit: Audit) -> None:
    """The broker that lacks the record removed the tombstone behind the audit's end, too."""
    last = keyed(END + 1, b"other")
    gone = keyed(END, b"hot", None)
    found = audit([replica([*OLDER, gone, last]), replica([*OLDER[1:], last])])
    assert (found.findings, found.unread) == ((), ())


def test_record_without_newer_one_is_missing(audit: Audit) -> None:
    newer = keyed(END, b"other")
    found = audit([replica([*OLDER, newer]), replica([*OLDER[1:], newer])])
    assert [(one.kind, one.first, one.brokers) for one in found.findings] == [("missing", 0, (1,))]


def test_log_that_grows_too_much_is_unread(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is looked through, the log that lacks the record grows with each fetch."""
    monkeypatch.setattr("plimsoll_spark.audit_range.LATER_OFFSETS_MAX", 5)
    growing = replica(OLDER[1:])
    fetch = growing.fetch

    def grow(offset: int, max_bytes: int) -> Fetched:
        if offset >= END - 1:
            growing.file += keyed(growing.high_watermark, b"x") + keyed(
                growing.high_watermark + 1, b"x"
            )
            growing.high_watermark += 2
        return fetch(offset, max_bytes)

    monkeypatch.setattr(growing, "fetch", grow)
    found = audit([replica(OLDER), growing])
    assert (found.findings, [(one.broker, one.why) for one in found.unread]) == (
        (),
        [(1, Why.BUSY.value)],
    )
