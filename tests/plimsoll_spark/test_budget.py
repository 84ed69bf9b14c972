"""A budget is judged by what the log did, and not by what the driver's machine did."""

from collections.abc import Mapping

import msgspec
import pytest
from confluent_kafka import KafkaException

from plimsoll_spark.budget import budget_lines, joined, judge_budget
from plimsoll_spark.isr_watch import IsrWatch
from plimsoll_spark.pacing import Pace, seconds
from plimsoll_spark.settings import Budget
from plimsoll_spark.values import Bin, Counts, Findings, Latency, Stall

START_MS = 1_000_000.0


def found(*, p99: float = 5, stalls: tuple[tuple[int, float], ...] = ()) -> Findings:
    """Of a drive of 100 s. `stalls`: partition and milliseconds, from 10 s on."""
    begin_ms = START_MS + 10_000
    return Findings(
        counts=Counts(acked=100),
        latency=Latency(p99=p99),
        stalls=tuple(
            Stall(partition=p, milliseconds=ms, from_ms=begin_ms, to_ms=begin_ms + ms)
            for p, ms in stalls
        ),
        pace=tuple(
            Bin(start_ms=START_MS + 1000 * n, acked=1, p50=1, p99=2, worst=3) for n in range(100)
        ),
        bin_ms=1000,
        examples=(),
    )


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        (Budget(max_stall_milliseconds=4_000), "partition 2 got no ack for 4,100 ms"),
        (Budget(p99_milliseconds=50), "p99 of acks was 80 ms"),
        (Budget(isr_full_within_seconds=30), "lacked a replica for at least 31 s"),
    ],
)
def test_exceeded_budget_is_violated_with_figures(budget: Budget, told: str) -> None:
    findings = found(p99=80, stalls=((1, 900), (2, 4_100)))
    verdict = judge_budget(budget, findings, (), 31.0)
    assert verdict is not None
    assert (verdict.verdict, verdict.reason.value) == ("Violated", "BudgetExceeded")
    assert told in verdict.message


def test_budget_that_holds_gives_no_verdict() -> None:
    budget = Budget(max_stall_milliseconds=5_000, p99_milliseconds=80, isr_full_within_seconds=31)
    findings = found(p99=80, stalls=((2, 4_100),))
    assert judge_budget(budget, findings, (), 31.0) is None
    assert judge_budget(Budget(), found(p99=1e6, stalls=((0, 1e6),)), (), 1e6) is None
    assert judge_budget(budget, found(p99=80), (), 31.0) is None, "no partition stalled"


@pytest.mark.parametrize(
    ("budget", "acks"),
    [
        (Budget(max_stall_milliseconds=5_000), False),
        (Budget(p99_milliseconds=50), False),
        (Budget(isr_full_within_seconds=30), True),
    ],
)
def test_limit_that_was_not_measured_is_not_kept(budget: Budget, acks: bool) -> None:
    findings = found(p99=1) if acks else msgspec.structs.replace(found(p99=0), pace=())
    verdict = judge_budget(budget, findings, (), None)
    assert verdict is not None
    assert (verdict.verdict, verdict.reason.value) == ("Inconclusive", "NotJudged")
    (line,) = budget_lines(budget, findings, (), None)
    assert f"budget.{line.limit} cannot be judged" in verdict.message
    assert (line.measured, line.result) == (None, "unknown")


def test_report_has_each_limit_with_figure() -> None:
    budget = Budget(max_stall_milliseconds=4_000, p99_milliseconds=80, isr_full_within_seconds=31)
    findings = found(p99=80, stalls=((2, 4_100),))
    starved = (START_MS + 10_000, START_MS + 11_000)
    for held, result in (((), "exceeded"), ((starved,), "starved")):
        lines = budget_lines(budget, findings, held, None)
        assert [(one.limit, one.allowed, one.measured, one.result) for one in lines] == [
            ("maxStallMilliseconds", 4_000, 4_100, result),
            ("p99Milliseconds", 80, 80, "within"),
            ("isrFullWithinSeconds", 31, None, "unknown"),
        ]
    assert budget_lines(Budget(), findings, (), 1.0) == ()


def test_starved_producers_make_no_violation() -> None:
    budget = Budget(max_stall_milliseconds=4_000, p99_milliseconds=50)
    held = [(START_MS + 11_000, START_MS + 12_500), (START_MS + 12_000, START_MS + 13_000)]
    verdict = judge_budget(budget, found(p99=80, stalls=((2, 4_100),)), held, None)
    assert verdict is not None
    assert (verdict.verdict, verdict.reason.value) == ("Inconclusive", "DriverStarved")
    assert "got no processor for 2,000 ms" in verdict.message
    assert "runner.resources" in verdict.message


def test_stall_beyond_the_starved_time_is_violated() -> None:
    held = [(START_MS + 11_000, START_MS + 12_000), (START_MS + 90_000, START_MS + 99_000)]
    budget = Budget(max_stall_milliseconds=4_000)
    verdict = judge_budget(budget, found(stalls=((2, 5_100),)), held, None)
    assert verdict is not None
    assert verdict.verdict == "Violated"


def test_overlapping_intervals_count_once() -> None:
    assert joined([(5, 7), (1, 3), (2, 4), (4, 4.5)]) == [(1, 4.5), (5, 7)]


@pytest.mark.parametrize(
    ("elapsed_s", "due"),
    [(0, 1), (5, 501), (10, 1_001), (40, 1_151), (70, 1_301), (500, 1_301)],
)
def test_pace_follows_its_steps(elapsed_s: float, due: int) -> None:
    assert Pace(((10, 100), (60, 5))).due(elapsed_s) == due


def test_rest_of_a_pace_follows_what_was_sent() -> None:
    pace = Pace(((10, 100), (20, 0), (60, 5)))
    assert pace.highest == 100
    assert pace.after(250) == Pace(((7.5, 100), (20, 0), (60, 5)))
    assert pace.after(1_100) == Pace(((40, 5),))
    assert pace.after(9_999) == Pace(((60, 5),))
    assert Pace.steady(5).after(7) == Pace.steady(5)


def test_pace_is_shared_by_producers() -> None:
    assert Pace.steady(90).shared(3).due(10) == 301
    assert [seconds(one) for one in ("90s", "5m", "2h", "1d")] == [90, 300, 7_200, 86_400]
    with pytest.raises(ValueError, match="not a duration"):
        seconds("1.5h")


class Cluster:
    """ISRs by time: `answers` in their order, None: no answer."""

    def __init__(self, *answers: Mapping[int, int] | None) -> None:
        self.answers = list(answers)
        self.now_s = 0.0

    def missing(self) -> Mapping[int, int]:
        self.now_s += 1
        answer = self.answers.pop(0)
        if answer is None:
            raise KafkaException("away")
        return answer

    def watch(self, limit_s: float = 100) -> IsrWatch:
        return IsrWatch(self.missing, limit_s, clock=lambda: self.now_s)


def test_longest_time_without_full_isr_is_measured() -> None:
    full, short = {0: 0, 1: 0}, {0: 0, 1: 1}
    cluster = Cluster(full, short, None, short, short, full, short, short, full)
    watch = cluster.watch()
    looks = [watch.look() for _ in range(9)]
    assert looks == [True, False, False, False, False, True, False, False, True]
    assert watch.longest_s == 3.0, "from the first answer that shows it to the last"


@pytest.mark.parametrize(
    ("answers", "seconds"),
    [
        ((None, None), None),
        (({0: 0}, None), 0.0),
        (({0: 0}, {0: 1}, None), None),
        (({0: 1}, {0: 0}, None), 0.0),
        (({0: 1}, {0: 1}), 1.0),
    ],
    ids=["no answer", "full", "not full at last", "full again", "exceeded"],
)
def test_isrs_of_the_end_may_be_unknown(
    answers: tuple[Mapping[int, int] | None, ...], seconds: float | None
) -> None:
    watch = Cluster(*answers).watch(limit_s=0.5)
    for _ in answers:
        watch.look()
    assert watch.at_the_end() == seconds


def test_window_without_an_answer_measures_no_isr() -> None:
    watch = Cluster({0: 0}, None, {0: 0}).watch()
    taken = []
    for _ in range(3):
        watch.look()
        taken.append(watch.taken())
    assert taken == [0.0, None, 0.0]


def test_watch_ends_when_the_limit_is_exceeded() -> None:
    cluster = Cluster({0: 1}, {0: 1})
    watch = cluster.watch(limit_s=0.5)
    watch.look()
    watch.look()
    watch.settle(until_s=1e9)
    assert watch.longest_s == 1.0
