"""Draws that skip the checks of `random.Random` are its draws: a seed's run depends on each."""

from __future__ import annotations

import random

import pytest

from plimsoll_sim.engine.draws import numbers_below, numbers_between
from plimsoll_sim.scenario.fixed_randomness import Dice


@pytest.mark.parametrize("end", [1, 2, 3, 1_499, 1_500, 1_536, 2**40])
def test_numbers_below_are_those_of_randrange(end: int) -> None:
    ours, theirs = random.Random(end), random.Random(end)
    draw = numbers_below(ours, end)
    assert [draw() for _ in range(1_000)] == [theirs.randrange(end) for _ in range(1_000)]
    assert ours.getstate() == theirs.getstate()


@pytest.mark.parametrize(("least", "most"), [(0, 0), (5, 5), (50, 500), (500, 5_000), (-3, 3)])
def test_numbers_between_are_those_of_randint(least: int, most: int) -> None:
    ours, theirs = random.Random(most), random.Random(most)
    draw = numbers_between(ours)
    expected = [theirs.randint(least, most) for _ in range(1_000)]
    assert [draw(least, most) for _ in range(1_000)] == expected
    assert ours.getstate() == theirs.getstate()


def test_loaded_dice_are_asked_themselves() -> None:
    assert numbers_below(Dice(1), 1_500)() == 0
    assert numbers_between(Dice(1))(7, 900) == 7
