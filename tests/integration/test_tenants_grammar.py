"""A bounded run of `make tenants`: no latency is judged, only what no machine's pace changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.tenant_attacks import (
    GRAMMAR,
    MALLORY,
    NOBODY,
    STRANGER,
    Phrase,
    Sentence,
    drawn,
)
from tests.integration.tenants import Figures, Plan, a_run, by_act, too_slow

PLAN = Plan(alone_s=0.3, beside_s=1.5, judges_latency=False, brokers=1)


def together(principal: str, **acts: dict[str, int]) -> Sentence:
    phrases = (Phrase(name, tuple(parameters.items())) for name, parameters in acts.items())
    return Sentence(0, principal, tuple(phrases))


ATTACKS = (
    together(
        MALLORY,
        unread_offsets={"connections": 4, "groups": 100, "asked": 50},
        commits={"connections": 2, "groups": 2_500, "rows": 6},
        parked_fetches={"connections": 4, "partitions": 1_000, "wait_ms": 30_000},
        times={"connections": 2, "rows": 6},
        topics={"connections": 1, "made": 5, "partitions": 10},
        groups_listed={"connections": 2, "named": 100},
        arrays={"connections": 20, "items": 19_000, "deaf": 0},
    ),
    together(
        NOBODY,
        half_requests={"connections": 2, "kilobytes": 15_000, "crawl_ms": 1_000},
        bombs={"connections": 1, "codec": 4, "uneven": 1},
        metadata={"connections": 1, "names": 100, "create": 0},
        configs={"connections": 1, "names": 100, "documented": 1},
    ),
    together(
        STRANGER,
        connections_held={"connections": 100},
        half_handshakes={"connections": 50, "noise": 0},
        wrong_passwords={"connections": 8, "users": 100_000},
    ),
)


async def test_hostile_principals_stay_within_bounds(tmp_path: Path) -> None:
    async with a_run(tmp_path, PLAN) as run:
        steps = [await run.step(sentence) for sentence in ATTACKS]
    for step in steps:
        assert not step.wrong, step.row()
        acts = {phrase.act for phrase in step.sentence.phrases}
        assert {act for act, did in step.did.items() if did["sent"]} == acts
    assert len([*by_act(steps)]) == 2 + sum(len(one.phrases) for one in ATTACKS)


def test_seed_reproduces_attack_and_covers_grammar() -> None:
    seen = [drawn(seed) for seed in range(1, 1_000)]
    assert seen == [drawn(seed) for seed in range(1, 1_000)]
    assert {phrase.act for one in seen for phrase in one.phrases} == set(GRAMMAR)
    assert all(
        one.principal in GRAMMAR[phrase.act].principals for one in seen for phrase in one.phrases
    )


@pytest.mark.parametrize(
    ("beside", "wrong"),
    [
        (Figures(260, 600, 9_000), []),
        (Figures(261, 601, 602), ["admin p50 261 ms, alone 10", "admin p99 601 ms, alone 300"]),
    ],
)
def test_latency_limit_is_double_or_250_ms_more(beside: Figures, wrong: list[str]) -> None:
    alone = dict.fromkeys(("produce", "group", "admin", "login"), Figures(10, 300, 400))
    assert [*too_slow(alone, {**alone, "admin": beside})] == wrong
