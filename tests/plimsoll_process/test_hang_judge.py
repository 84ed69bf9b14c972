"""HangJudge: what proves that an event loop is hung."""

import pytest

from plimsoll_process.hang_watch import HUNG_S, LOOK_EVERY_S, STARVED_S, HangJudge, LoopInterval


def silent(waited_s: float = 0.0, *, interval_s: float = LOOK_EVERY_S, on_disk: bool = False):
    return LoopInterval(interval_s, waited_s, on_disk, progressed=False)


ANSWERED = LoopInterval(LOOK_EVERY_S, 0.0, on_disk=False, progressed=True)


def looks_until_hung(judge: HangJudge, look: LoopInterval, most: int = 10_000) -> int | None:
    for number in range(1, most):
        judge.look(look)
        if judge.is_hung:
            return number
    return None


def test_silent_loop_that_could_run_is_hung():
    assert looks_until_hung(HangJudge(), silent()) == HUNG_S / LOOK_EVERY_S


@pytest.mark.parametrize("look", [silent(LOOK_EVERY_S), silent(on_disk=True)])
def test_loop_without_processor_or_disk_is_never_hung(look: LoopInterval):
    assert looks_until_hung(HangJudge(), look) is None


def test_loop_with_one_percent_is_hung_late():
    """Only the time in which it could run counts."""
    looks = looks_until_hung(HangJudge(), silent(0.99 * LOOK_EVERY_S))
    assert looks == pytest.approx(100 * HUNG_S / LOOK_EVERY_S, rel=0.01)


def test_process_stopped_for_an_hour_is_not_hung():
    judge = HangJudge()
    judge.look(silent(interval_s=3600))
    assert judge.proven_s == LOOK_EVERY_S


def test_answer_ends_what_was_proven():
    judge = HangJudge()
    for _ in range(int(HUNG_S / LOOK_EVERY_S) - 1):
        judge.look(silent())
    assert judge.look(ANSWERED) == HUNG_S - LOOK_EVERY_S
    assert (judge.silent_s, judge.proven_s) == (0.0, 0.0)
    assert judge.look(ANSWERED) == 0.0


def test_short_silence_is_not_worth_a_line():
    judge = HangJudge()
    judge.look(silent())
    assert LOOK_EVERY_S < STARVED_S
    assert judge.look(ANSWERED) == 0.0
