"""Brokers that come and go all the time: drains end, and whoever is forgotten held nothing."""

from collections import Counter

import pytest

from plimsoll_sim.runs.run import run

STEPS = 5_000
SEEDS, LONG_SEEDS = range(3, 5), range(5, 11)
RECORDS = ("BrokersLeaving(", "BrokerUnregistered(", "phase='Completed'")


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(LONG_SEEDS, marks=pytest.mark.long)])
def test_drains_end_and_brokers_come_back(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        result = run(seed, STEPS, profile="members")
        assert not result.sentence, f"seed {seed}: {result.outcome}: {result.sentence}"
        seen.update(text for line in result.events for text in RECORDS if text in line)
    assert all(seen[text] for text in RECORDS), seen
