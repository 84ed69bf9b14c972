"""Every guard of the protocol matters: without it a random run fails, and so does its scenario.

Where a seed that was known no longer notices, the next ones are tried.  When a mutant survives
them, `make mutants` looks for others; if there are none, the simulator has become too weak.
"""

import json
from pathlib import Path

import pytest
from tests.plimsoll_sim.mutants_check import TIMEOUT_S, noticed

from plimsoll_sim.cluster.patience import Patience
from plimsoll_sim.mutants import hunt, kills_table
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
from plimsoll_sim.mutants.kills_table import known, renew
from plimsoll_sim.mutants.mutant import ROOT, Edit, Mutant, Stale, texts
from plimsoll_sim.mutants.mutant_table import MUTANTS
from plimsoll_sim.runs.profiles.profile_table import PROFILES

NAMES = [mutant.name for mutant in MUTANTS]
pytestmark = pytest.mark.timeout(TIMEOUT_S + 60)  # whichever comes first waits for all of them


@pytest.mark.parametrize("name", NAMES)
def test_mutant_without_a_guard_is_detected(name: str) -> None:
    all_found, said = noticed()
    found = all_found[name]
    by_chance = next(mutant.by_chance for mutant in MUTANTS if mutant.name == name)
    assert found["kills"] or not by_chance, (
        f"survived {found['tried']} seeds; see make mutants\n{said}"
    )
    assert found["scenarios"], "no scenario is named for it"
    blind = [scenario for scenario, saw in found["scenarios"].items() if not saw]
    assert not blind, f"these scenarios come as written: {blind}"


def test_seeds_that_notice_a_mutant_hold_without_it() -> None:
    _, said = noticed()
    assert "fails without a mutation" not in said, said


def test_names_are_unique_and_in_the_record() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert list(known()) == NAMES


def test_profiles_and_scenarios_of_mutants_exist() -> None:
    names = {path.name.partition("-")[0] for path in SCENARIOS.glob("*.txt")}
    files = names | {name.rstrip("abcdefg") for name in names}
    for mutant in MUTANTS:
        assert mutant.profile is None or mutant.profile in PROFILES
        assert set(mutant.scenarios) <= files, mutant.name


@pytest.mark.parametrize(
    ("check", "stuck", "counts", "asked"),
    [
        (True, True, True, [CHECKED]),
        (True, False, False, [CHECKED, Patience()]),
        (False, False, False, [Patience()]),
    ],
    ids=["check-known", "check-unknown", "hunt"],
)
def test_mutant_that_only_delays_is_not_detected_by_a_short_wait(
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


def test_short_runs_are_looked_for_where_a_long_one_is_known_that_ends_by_itself() -> None:
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


def test_mutant_of_removed_code_fails() -> None:
    here = str(Path(__file__).relative_to(ROOT))
    gone = Mutant(name="gone", rule="", edits=(Edit(here, "there is no" + " such line", ""),))
    with pytest.raises(Stale, match="gone: 0 times"):
        texts(gone)
    twice = Mutant(name="twice", rule="", edits=(Edit(here, "import", ""),))
    with pytest.raises(Stale, match="twice"):
        texts(twice)


def test_mutants_all_change_code_that_compiles() -> None:
    for mutant in MUTANTS:
        for path, text in texts(mutant).items():
            assert text != path.read_text()
            compile(text, str(path), "exec", dont_inherit=True)


def test_check_that_writes_replaces_seeds_that_no_longer_notice_and_nothing_else(
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
    monkeypatch.setattr(kills_table, "KNOWN", table)
    for mutant, seed, steps in ((stays, 2, 100), (shifts, 7, 90), (is_shorter, 2, 600)):
        kill = Kill(seed=seed, steps=steps, predicate="CommitQuorum")
        found = Chase(mutant=mutant, tries=[], kills_max=1, check=True)
        found.kills, found.scenarios = [kill], {"S05": ["S05"]}
        renew((stays, shifts, is_shorter), found)
    after = json.loads(table.read_text())
    assert after[stays.name] == before[stays.name]
    assert after[shifts.name]["kills"] == [{**was, "seed": 7, "steps": 90}]
    assert after[shifts.name]["scenarios"] == files
    assert after[is_shorter.name]["kills"] == [{**was, "steps": 600}]
