"""The table of faults: what it names is there, and what is there can be drawn."""

from collections import Counter

import pytest

from plimsoll_sim.faults.fault_table import FAULTS, TABLE, Fault
from plimsoll_sim.runs.drawn_options import (
    CLIENT_TOPIC_FAULT,
    DAMAGE_FAULT,
    DELETIONS_FAULT,
    LOST_FILES_FAULTS,
)
from plimsoll_sim.runs.profiles.profile_table import PROFILES
from plimsoll_sim.runs.run import run


@pytest.mark.parametrize("fault", TABLE, ids=lambda fault: fault.name)
def test_fault_is_named_by_function_or_script(fault: Fault) -> None:
    module = fault.strike.__module__.rpartition(".")[2]
    assert fault.name in (fault.strike.__name__, module)


def test_fault_names_are_unique_and_drawable() -> None:
    assert len(FAULTS) == len(TABLE)
    chosen = {name for profile in PROFILES.values() for name in profile.faults}
    for name, _ in (CLIENT_TOPIC_FAULT, DAMAGE_FAULT, DELETIONS_FAULT, *LOST_FILES_FAULTS):
        chosen.add(name)
    assert chosen <= FAULTS.keys()
    assert [fault.name for fault in TABLE if not fault.weight and fault.name not in chosen] == []


def test_schedule_counts_faults_by_name() -> None:
    result = run(3, 2_000, profile="hand-over")
    told = Counter(line.split(": ")[1] for line in result.events if "  fault " in line)
    assert told
    assert told == result.faults
    assert told.keys() <= PROFILES["hand-over"].faults.keys()
    assert len(result.struck) == told.total()
