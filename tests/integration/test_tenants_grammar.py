"""A bounded run of `make tenants`: no latency is judged, only what no machine's pace changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.tenant_foe import MALLORY, NOBODY, STRANGER
from tests.integration.tenant_grammar import (
    EARLIER,
    GRAMMAR,
    LATER,
    LOWEST,
    Phrase,
    Sentence,
    drawn,
    drawn_of,
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
        MALLORY,
        tiny_segments={"connections": 1, "partitions": 6, "kilobytes": 60, "declared": 1},
        static_rejoins={"connections": 2, "instances": 10, "kilobytes": 60},
        assignments={"connections": 2, "rows": 1_000, "kilobytes": 1},
        validated={"connections": 2, "rows": 100, "partitions": 10_000},
        altered={"connections": 1, "topics": 2},
        grown={"connections": 1, "step": 10},
        objects={"connections": 2, "names": 5, "rules": 50},
        records_deleted={"connections": 1, "rows": 5_000},
        rules={"connections": 1, "rows": 100},
        times_of_many={"connections": 1, "partitions": 100},
        fetch_sessions={"connections": 4, "partitions": 6},
        coordinators={"connections": 1, "keys": 19_000},
        all_offsets={"connections": 4, "groups": 100, "asked": 50},
        groups_deleted={"connections": 2, "named": 100},
        log_dirs={"connections": 2, "rows": 0},
    ),
    together(
        NOBODY,
        half_requests={"connections": 2, "kilobytes": 15_000, "crawl_ms": 1_000},
        bombs={"connections": 1, "codec": 4, "uneven": 1},
        metadata={"connections": 1, "names": 100, "create": 0},
        configs={"connections": 1, "names": 100, "documented": 1},
        tagged={"connections": 4, "tags": 100, "size": 100},
        passwords={"connections": 2, "rows": 100, "iterations": 16_384},
        relogins={"connections": 4},
    ),
    together(
        STRANGER,
        connections_held={"connections": 100},
        half_handshakes={"connections": 50, "noise": 0},
        wrong_passwords={"connections": 8, "users": 100_000},
        slow_frames={"connections": 50, "crawl_ms": 10},
        opened_and_closed={"connections": 4, "tls": 0},
        half_logins={"connections": 50, "held": 1},
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
    seen = [drawn(seed) for seed in range(LOWEST, 2_000)]
    assert seen == [drawn(seed) for seed in range(LOWEST, 2_000)]
    assert {phrase.act for one in seen for phrase in one.phrases} == set(GRAMMAR)
    assert all(
        one.principal in GRAMMAR[phrase.act].principals for one in seen for phrase in one.phrases
    )
    assert {drawn_of(act, 7).phrases[0].act for act in GRAMMAR} == set(GRAMMAR)
    assert [drawn(-number).phrases[0].act for number in range(len(LATER))] == [*LATER]


def test_added_act_changes_its_own_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [drawn(seed) for seed in range(1, 2_000)]
    monkeypatch.setitem(LATER, "added", EARLIER["metadata"])
    monkeypatch.setitem(GRAMMAR, "added", EARLIER["metadata"])
    after = [drawn(seed) for seed in range(1, 2_000)]
    with_it = 0
    for old, new in zip(before, after, strict=True):
        assert (old.principal, len(old.phrases)) == (new.principal, len(new.phrases))
        pairs = zip(old.phrases, new.phrases, strict=True)
        assert [two.act for one, two in pairs if one != two] in ([], ["added"])
        with_it += any(one.act == "added" for one in new.phrases)
    assert 20 < with_it < 120


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
