"""A process that takes up many objects does not look at all it has each time."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from plimsoll_broker.__main__ import COLLECTOR
from plimsoll_process.process_tuning import tune

PARKED = 13_000 * 20
"""As many objects as 200 consumers with 64 long polls each leave with a broker."""


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    # What is frozen stays so: what pytest has collected is, too.
    gc.set_threshold(*before)


def looks_at_everything() -> int:
    return int(gc.get_stats()[2]["collections"])


def test_collector_skips_most_objects_under_many_polls() -> None:
    gc.collect()
    tune(*COLLECTOR)
    before = looks_at_everything()
    parked: list[list[int]] = [[index] for index in range(PARKED)]
    assert looks_at_everything() == before
    assert len(parked) == PARKED


def test_collector_of_a_broker_still_finds_cycles() -> None:
    tune(*COLLECTOR)
    before = gc.get_stats()[0]["collected"] + gc.get_stats()[1]["collected"]
    for _ in range(2 * COLLECTOR[0]):
        cycle: list[object] = []
        cycle.append(cycle)
    after = gc.get_stats()[0]["collected"] + gc.get_stats()[1]["collected"]
    assert after - before >= COLLECTOR[0]
