"""The named scenarios, each a text that can be read: what is done, and what comes of it.

A difference shows what came instead.  When that is what should come, `python -m plimsoll_sim
--scenario FILE --rewrite` writes it down.
"""

from pathlib import Path

import pytest

from plimsoll_sim.scenario.runner import difference, play

SCENARIOS = sorted((Path(__file__).parent.parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario_comes_as_written(path: Path) -> None:
    played = play(path.read_text())
    if played.sentence:
        pytest.fail(f"{path.name} {played.outcome}: {played.sentence}", pytrace=False)
    if told := difference(path, played.text):
        pytest.fail(told, pytrace=False)
