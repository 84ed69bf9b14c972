"""The mutants of logins and rights can still be made: their text is where it was."""

from __future__ import annotations

import pytest
from tests.plimsoll_broker.security.mutants import MUTANTS

from plimsoll_sim.mutants.mutant import ROOT, Mutant, texts


@pytest.mark.parametrize(("mutant", "tests"), MUTANTS, ids=[one.name for one, _ in MUTANTS])
def test_mutant_of_the_code_as_it_is_can_be_made(mutant: Mutant, tests: str) -> None:
    assert texts(mutant)
    assert (ROOT / tests).exists()
