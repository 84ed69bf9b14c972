"""Brokers that come and go all the time: drains end, and whoever is forgotten held nothing."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from plimsoll_sim import run as runs
from plimsoll_sim.options import Options, draw

STEPS = 5_000
SEEDS = range(1, 7)
RECORDS = ("BrokersLeaving(", "BrokerUnregistered(", "phase='Completed'")


def restless(rng: random.Random) -> Options:
    """More brokers than a topic needs, added and removed as often as anything else happens."""
    drawn = draw(rng)
    factor = min(drawn.replication_factor, 3)
    faults = dict(drawn.faults) | {"remove broker": 6, "add broker": 5}
    # After these a person may have to act, so nothing need come about.
    faults = {name: n for name, n in faults.items() if name not in ("restore etcd", "empty disk")}
    return replace(
        drawn,
        brokers=max(drawn.brokers, 4),
        replication_factor=factor,
        min_isr=min(drawn.min_isr, factor),
        faults=tuple(faults.items()),
    )


def test_drains_end_and_brokers_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "draw", restless)
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        result = runs.run(seed, STEPS)
        assert not result.sentence, f"seed {seed}: {result.outcome}: {result.sentence}"
        seen.update(text for line in result.events for text in RECORDS if text in line)
    assert all(seen[text] for text in RECORDS), seen
