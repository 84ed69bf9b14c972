"""The mutants of logins and rights still apply to the code, and their tests exist."""

from __future__ import annotations

import pytest
from tests.plimsoll_broker.security.mutants import MUTANTS, file_of

from plimsoll_sim.mutants.mutant import Mutant, compiled, edited_modules
from plimsoll_sim.mutants.tree_edits import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=[one.name for one in MUTANTS])
def test_mutant_applies_exactly_once(mutant: Mutant) -> None:
    for module in edited_modules(mutant).values():
        compiled(module)
    assert (ROOT / file_of(mutant)).exists()
