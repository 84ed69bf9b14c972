"""Topic objects are renamed while operators die: no topic goes that an object declares."""

from __future__ import annotations

import pytest

from plimsoll_operator.reconcile.topic import deletion_proof
from plimsoll_operator.reconcile.topic.deletion_proof import TopicClaims
from plimsoll_sim.runs.run import run

STEPS = 2_000
SEEDS = (1, 2, 3, 4)


def test_no_topic_goes_that_an_object_declares() -> None:
    for seed in SEEDS:
        result = run(seed, STEPS, profile="renames")
        assert not result.sentence, f"{seed}: {result.outcome}: {result.sentence}"


def test_deletion_that_looks_for_no_heir_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The predicate sees a proof of absence that asks nobody else."""

    async def nobody(*_: object) -> TopicClaims:
        return TopicClaims(None, any=False)

    monkeypatch.setattr(deletion_proof, "claims_on", nobody)
    found = {run(seed, STEPS, profile="renames").sentence.split(":")[0] for seed in SEEDS}
    assert "TopicKept" in found
