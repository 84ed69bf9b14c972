"""Every guard of the protocol matters: without it a scenario fails, and so does a random run.

Where a known seed no longer notices, the next ones are tried. If a mutant survives them, `make
mutants` looks for others; if there are none, the simulator has become too weak.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.plimsoll_sim.mutants_check import TIMEOUT_S, noticed

from plimsoll_sim.cluster.run_options import Patience
from plimsoll_sim.mutants import hunt, kills
from plimsoll_sim.mutants.__main__ import shorter
from plimsoll_sim.mutants.hunt import (
    CHECKED,
    LIVENESS,
    SCENARIOS,
    SHORT_STEPS,
    Chase,
    Kill,
    Try,
)
from plimsoll_sim.mutants.mutant import MUTANTS, Mutant, compiled, edited_modules
from plimsoll_sim.runs.profiles.profile_table import PROFILES

NAMES = [mutant.name for mutant in MUTANTS]
SAMPLE = NAMES[::12]
"""The mutants whose scenarios `make test` plays; `make long` plays those of all."""
# The first test of a check waits for all mutants.
pytestmark = pytest.mark.timeout(TIMEOUT_S + 60)


@pytest.mark.parametrize("mutant", MUTANTS, ids=NAMES)
def test_mutant_applies_exactly_once(mutant: Mutant) -> None:
    for module in edited_modules(mutant).values():
        compiled(module)


@pytest.mark.parametrize("name", SAMPLE)
def test_sampled_mutant_fails_its_scenarios(name: str) -> None:
    _fails_its_scenarios(name, noticed("--scenarios", *SAMPLE)[0])


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_mutant_fails_its_scenarios(name: str) -> None:
    _fails_its_scenarios(name, noticed("--check")[0])


def _fails_its_scenarios(name: str, found: Mapping[str, Any]) -> None:
    assert found[name]["scenarios"], "no scenario is named for it"
    blind = [scenario for scenario, saw in found[name]["scenarios"].items() if not saw]
    assert not blind, f"these scenarios come as written: {blind}"


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=NAMES)
def test_mutant_fails_a_random_run(mutant: Mutant) -> None:
    all_found, lines = noticed("--check")
    found = all_found[mutant.name]
    assert found["kills"] or mutant.rare, (
        f"survived {found['tried']} seeds; see make mutants\n{lines}"
    )


@pytest.mark.long
def test_seeds_of_mutants_hold_without_them() -> None:
    _, lines = noticed("--check")
    assert "fails without a mutation" not in lines, lines


def test_mutants_are_unique_and_have_known_kills() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert list(kills.known()) == NAMES


def test_profiles_and_scenarios_of_mutants_exist() -> None:
    names = {path.name.partition("-")[0] for path in SCENARIOS.glob("*.txt")}
    files = names | {name.rstrip("abcdefg") for name in names}
    for mutant in MUTANTS:
        assert mutant.profile is None or mutant.profile in PROFILES
        assert set(mutant.noticed_by) <= files, mutant.name


@pytest.mark.parametrize(
    ("check", "stuck", "counts", "asked"),
    [
        (True, True, True, [CHECKED]),
        (True, False, False, [CHECKED, Patience()]),
        (False, False, False, [Patience()]),
    ],
    ids=["check-known", "check-unknown", "hunt"],
)
def test_mutant_that_only_delays_survives(
    check: bool,
    stuck: bool,
    counts: bool,
    asked: list[Patience],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its run heals, in more time than a check takes for runs that are known never to."""
    waits: list[Patience] = []

    def slow(_: str | None, one: Try, patience: Patience) -> tuple[Kill | None, bool]:
        waits.append(patience)
        kill = Kill(seed=one.seed, steps=one.steps, predicate=LIVENESS)
        return (kill if patience == CHECKED else None), False

    monkeypatch.setattr(hunt, "_try", slow)
    one = Try(steps=100, seed=1)
    known = frozenset({one}) if stuck else frozenset()
    delays = Mutant(name="delays", rule="", edits=())
    chase = Chase(mutant=delays, tries=[one], kills_max=1, check=check, stuck=known)
    assert (hunt._noticed(chase, one) is not None) is counts
    assert waits == asked


def test_short_runs_are_tried_for_known_long_ones() -> None:
    def known(steps: int, predicate: str) -> dict[str, object]:
        kill = {"seed": 1, "steps": steps, "predicate": predicate}
        return {"tried": 1, "kills": [kill], "scenarios": {"S05": ["S05"]}}

    found = shorter(MUTANTS[0], known(2_500, "CommitQuorum"))
    assert found is not None
    assert {one.steps for one in found.tries} == {SHORT_STEPS}
    assert found.scenarios, "played already"
    assert shorter(MUTANTS[0], known(SHORT_STEPS, "CommitQuorum")) is None
    assert shorter(MUTANTS[0], known(2_500, LIVENESS)) is None
    assert shorter(MUTANTS[0], None) is None


def test_check_replaces_only_seeds_that_shifted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays, shifts, is_shorter = MUTANTS[:3]
    was = {"seed": 2, "steps": 100, "predicate": "CommitQuorum"}
    files = {"S05": ["S05", "S05b"]}
    before = {
        one.name: {"tried": 1, "kills": [{**was, "steps": steps}], "scenarios": files}
        for one, steps in ((stays, 100), (shifts, 100), (is_shorter, 2_500))
    }
    table = tmp_path / "kills.json"
    table.write_text(json.dumps(before))
    monkeypatch.setattr(kills, "FILE", table)
    for mutant, seed, steps in ((stays, 2, 100), (shifts, 7, 90), (is_shorter, 2, 600)):
        kill = Kill(seed=seed, steps=steps, predicate="CommitQuorum")
        found = Chase(mutant=mutant, tries=[], kills_max=1, check=True)
        found.kills, found.scenarios = [kill], {"S05": ["S05"]}
        kills.renew(found)
    after = json.loads(table.read_text())
    assert after[stays.name] == before[stays.name]
    assert after[shifts.name]["kills"] == [{**was, "seed": 7, "steps": 90}]
    assert after[shifts.name]["scenarios"] == files
    assert after[is_shorter.name]["kills"] == [{**was, "steps": 600}]
