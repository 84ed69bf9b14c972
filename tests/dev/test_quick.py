"""What `make quick` runs, and what it leaves out."""

from dev import quick
from dev.tier_lanes import ROOT, TIERS


def test_quick_runs_unit_tests_except_slow_ones() -> None:
    (unit,) = [tier for tier in TIERS if tier.name == "unit"]
    assert f"{unit.selection(long=False)} and not slow" in quick.TESTS
    assert {f"--ignore={path}" for path in unit.ignored} < set(quick.TESTS)


def test_quick_runs_tidy_once_by_the_gates() -> None:
    assert "dev/check.sh;" in quick.BESIDE[-1]
    assert "tests/test_tidy.py" in (ROOT / "dev" / "check.sh").read_text()
    assert "--ignore=tests/test_tidy.py" in quick.TESTS
