"""Which log is cleaned how far, what becomes one segment, and what a start does with a swap."""

import pytest

from plimsoll_core.cluster.cluster_configs import broker_configs
from plimsoll_core.cluster.topic_configs import check_configs, client_configs
from plimsoll_core.compaction import swap
from plimsoll_core.compaction.plan import (
    GROUP_MAX,
    OFFSETS_MAX,
    CompactionLimits,
    SealedSegment,
    groups,
    plan,
    urgency,
)
from plimsoll_core.compaction.retain import delete_horizon, is_expired, keeps_record
from plimsoll_core.errors import Refusal
from plimsoll_core.replica.follower import CompactedCopy

NOW_MS = 1_000_000


def segments(*sizes: int, length: int = 10, newest_ms: int = 0) -> list[SealedSegment]:
    return [
        SealedSegment(n * length, (n + 1) * length, size, newest_ms, newest_ms)
        for n, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("first_dirty", "stable_end", "fields", "end"),
    [
        (0, 30, {}, 30),
        (10, 30, {}, 30),
        (20, 30, {}, None),  # a third is no more than half
        (20, 30, {"dirty_ratio_min": 0.3}, 30),
        (0, 29, {}, 20),
        (0, 9, {}, None),
        (0, 30, {"lag_min_ms": 10_000}, None),
        (20, 30, {"lag_max_ms": 500}, 30),
        (20, 30, {"lag_max_ms": 5_000}, None),
        (30, 30, {"dirty_ratio_min": 0.0}, None),
    ],
)
def test_log_is_cleaned_up_to_stable_old_records(
    first_dirty: int, stable_end: int, fields: dict[str, float], end: int | None
) -> None:
    sealed = segments(100, 100, 100, newest_ms=NOW_MS - 1_000)
    limits = CompactionLimits(**fields)  # type: ignore[arg-type]
    found = plan(sealed, first_dirty, stable_end, limits, NOW_MS)
    assert (None if found is None else found.end) == end


def test_without_a_clock_no_record_is_old() -> None:
    sealed = segments(100, 100)
    assert plan(sealed, 0, 20, CompactionLimits(lag_min_ms=1), None) is None
    assert plan(sealed, 10, 20, CompactionLimits(lag_max_ms=1), None) is None
    assert plan(sealed, 0, 20, CompactionLimits(), None) is not None


def test_internal_topics_are_cleaned_first() -> None:
    sealed = segments(100, 100)
    dirty, half = (
        plan(sealed, first, 20, CompactionLimits(dirty_ratio_min=0), 0) for first in (0, 10)
    )
    overdue = plan(sealed, 10, 20, CompactionLimits(lag_max_ms=1), NOW_MS)
    assert dirty is not None
    assert half is not None
    assert overdue is not None
    order = [urgency(half, internal=False), urgency(dirty, internal=False)]
    order += [urgency(overdue, internal=False), urgency(half, internal=True)]
    assert order == sorted(order)


def test_cleaned_group_is_no_larger_than_segment() -> None:
    found = groups(segments(40, 40, 40, 100, 10), 50, 100)
    assert [[one.size for one in group] for group in found] == [[40, 40], [40], [100], [10]]
    assert [len(group) for group in groups(segments(*[0] * 130), 2_000, 100)] == [
        GROUP_MAX,
        GROUP_MAX,
        2,
    ]
    far = segments(1, 1, length=OFFSETS_MAX)
    assert len(groups(far, 2**40, 100)) == 2
    assert len(groups(segments(1, 1, 1), 20, 100)[0]) == 2, "only what begins below the end"


def test_tombstone_waits_for_its_horizon() -> None:
    new = delete_horizon(None, True, 500, 1_000)
    assert (new.at_ms, new.is_new, is_expired(new, 10_000)) == (1_500, True, False)
    known = delete_horizon(1_500, True, 9_999, 1_400)
    assert (known.at_ms, known.is_new) == (1_500, False)
    assert [is_expired(known, now) for now in (1_499, 1_500, None)] == [False, True, False]
    assert delete_horizon(None, False, 500, 1_000).at_ms is None


def test_last_record_of_each_key_stays() -> None:
    assert not keeps_record(superseded=True, expired_tombstone=False)
    assert keeps_record(superseded=False, expired_tombstone=False)
    assert not keeps_record(superseded=False, expired_tombstone=True)


def test_start_finishes_a_committed_swap_alone() -> None:
    def name(base: int, suffix: str) -> str:
        return f"{base:020d}{suffix}"

    names = [name(base, kind) for base in (0, 10, 20, 30) for kind in (".log", ".index")]
    names += [name(10, ".log.swap"), name(10, ".index.cleaned"), name(30, ".log.cleaned")]
    names += [name(10, ".timeindex"), "9.log.swap", "x.log.swap", name(20, ".snapshot")]
    assert swap.committed(names) == [10]
    rest = swap.rest(10, 30, names)
    assert rest.renames == [(name(10, ".index.cleaned"), name(10, ".index"))]
    assert rest.removals == [name(10, ".timeindex"), name(20, ".index"), name(20, ".log")]
    assert rest.last == (name(10, ".log.swap"), name(10, ".log"))


class HolesLog:
    """What `CompactedCopy` reads of a log."""

    log_start_offset, log_end_offset, holes = 0, 100, True


def test_compacted_log_is_never_truncated_below_commit() -> None:
    log = HolesLog()
    copy = CompactedCopy(log, 60)  # type: ignore[arg-type]
    assert copy.least_cut == 60
    copy.committed(40)
    assert copy.least_cut == 60
    log.holes = False
    assert copy.least_cut == 0
    log.holes, log.log_end_offset = True, 0
    copy.ends_here()
    assert copy.least_cut == 0


def test_half_done_copy_begins_again_in_new_epoch() -> None:
    log = HolesLog()
    copy = CompactedCopy(log, 60)  # type: ignore[arg-type]
    copy.new_term()
    assert not copy.must_begin_again
    copy.committed(120)  # by its leader, of which it copies what a cleaner left
    copy.new_term()
    assert copy.must_begin_again
    log.log_end_offset = 110
    copy.ends_here()  # it leads with half of the copy
    assert not copy.must_begin_again
    copy.new_term()
    assert not copy.must_begin_again
    assert copy.least_cut == 110


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"cleanup.policy": "compact"}, None),
        ({"cleanup.policy": "compact,delete"}, None),
        ({"cleanup.policy": "delete, compact"}, None),
        ({"cleanup.policy": ""}, None),
        ({"cleanup.policy": "expire"}, "must be delete, compact, compact,delete or empty"),
        ({"cleanup.policy": "compact,"}, "must be"),
        ({"min.cleanable.dirty.ratio": "0"}, None),
        ({"min.cleanable.dirty.ratio": "1.0E-4"}, None),
        ({"min.cleanable.dirty.ratio": ".5"}, None),
        ({"min.cleanable.dirty.ratio": "1e"}, "from 0 to 1"),
        ({"min.cleanable.dirty.ratio": "1_0e-1"}, "from 0 to 1"),
        ({"min.cleanable.dirty.ratio": "-1E-4"}, "from 0 to 1"),
        ({"min.cleanable.dirty.ratio": "1.5"}, "from 0 to 1"),
        ({"min.cleanable.dirty.ratio": "nan"}, "from 0 to 1"),
        ({"min.cleanable.dirty.ratio": "."}, "from 0 to 1"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "must not be greater"),
        ({"max.compaction.lag.ms": "0"}, "must be a whole number"),
    ],
)
def test_configs_of_compaction_are_checked(configs: dict[str, str], words: str | None) -> None:
    refusal = check_configs(configs)
    if words is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert words in refusal.message


@pytest.mark.parametrize(
    ("text", "policies"),
    [
        ("delete,compact", "delete,compact"),
        ("compact,delete", "compact,delete"),
        (" delete , compact,delete", "delete,compact"),
        (" ", ""),
    ],
)
def test_cleanup_policies_keep_the_clients_order(text: str, policies: str) -> None:
    kept = client_configs({"cleanup.policy": text})
    assert not isinstance(kept, Refusal)
    assert kept.kept == {"cleanup.policy": policies}


@pytest.mark.parametrize("policy", ["compact", "compact,delete", ""])
def test_brokers_default_is_delete_alone(policy: str) -> None:
    refused = broker_configs({"log.cleanup.policy": policy})
    assert isinstance(refused, Refusal)
    assert "in single topics instead" in refused.message
    assert broker_configs({"log.cleaner.backoff.ms": "5"}) == {"log.cleaner.backoff.ms": "5"}
