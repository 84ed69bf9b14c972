"""A log that ends below what superseded records that its cleaner took is no copy of anything."""

from __future__ import annotations

from tests.plimsoll_broker.storage.conftest import Volume, fill

from plimsoll_broker.storage import checkpoint_formats

LAST = f"{240:020d}"
ORDERS = ("orders", 3)


def a_cleaned_log(volume: Volume, end: int) -> None:
    """As of a cleaner that has begun to take what was superseded below `end`."""
    log = volume.log()
    fill(log, 40)
    assert volume.store is not None
    volume.store.begin_superseding(log, end)()


def lose(volume: Volume, base: str) -> None:
    for path in volume.directory.glob(f"{base}.*"):
        path.unlink()


def test_log_without_superseding_records_is_incomplete(volume: Volume) -> None:
    a_cleaned_log(volume, 300)
    lose(volume, LAST)
    for _ in range(2):  # a start accepts nothing
        log = volume.log()
        assert log.log_end_offset < 300
        assert (log.superseding_lost, log.incomplete) == (True, True)


def test_log_beyond_superseding_records_is_complete(volume: Volume) -> None:
    a_cleaned_log(volume, 240)
    lose(volume, LAST)
    assert not volume.log().incomplete


def test_end_of_last_round_is_the_default(volume: Volume) -> None:
    """As a release before left it."""
    a_cleaned_log(volume, 0)
    assert volume.store is not None
    volume.store.cleaned_ends.save({ORDERS: 300})
    (volume.path / checkpoint_formats.SUPERSEDING_ENDS).unlink()
    lose(volume, LAST)
    for _ in range(2):
        assert volume.log().superseding_lost
        assert volume.store is not None
        volume.store.save_lowered()


def test_log_that_leads_or_restarts_is_complete(volume: Volume) -> None:
    a_cleaned_log(volume, 300)
    lose(volume, LAST)
    log = volume.log()
    log.notes.supersedes_below(log.log_end_offset)
    assert not volume.log().superseding_lost
    a_cleaned_log(volume, 10_000)
    log = volume.log()
    assert log.superseding_lost
    log.discard_to(0)
    assert not log.incomplete
    assert not volume.log().incomplete
