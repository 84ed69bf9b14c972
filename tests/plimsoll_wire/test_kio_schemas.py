"""What a broker imports: kio without hypothesis, unless a test has imported that before."""

import subprocess
import sys

import pytest

SHOW = "import sys, plimsoll_wire.messages; print('hypothesis.strategies' in sys.modules)"


@pytest.mark.parametrize(
    ("before", "imported"), [("", "False"), ("import hypothesis.strategies; ", "True")]
)
def test_wire_imports_kio_without_hypothesis(before: str, imported: str) -> None:
    for after in ("", "; import hypothesis; assert hypothesis.given"):
        done = subprocess.run(
            [sys.executable, "-c", before + SHOW + after],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout.strip() == imported
