"""Log lines of a local cluster: warnings on the terminal, everything in a bounded file."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll_operator.local import start

LINES = """
import logging, sys
from pathlib import Path
from plimsoll_operator.local import start
start.log_to_terminal(verbose=sys.argv[2] == "verbose")
start.log_to_file(Path(sys.argv[1]))
logging.getLogger("plimsoll.x").info("a broker takes part")
logging.getLogger("plimsoll.x").warning("a broker is away")
"""


@pytest.mark.parametrize(("how", "told"), [("quiet", False), ("verbose", True)])
def test_terminal_shows_warnings_and_the_file_has_all(
    tmp_path: Path, how: str, *, told: bool
) -> None:
    path = tmp_path / "operator.log"
    done = subprocess.run(
        [sys.executable, "-c", LINES, str(path), how],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ("a broker takes part" in done.stderr) is told
    assert "WARNING plimsoll.x a broker is away" in done.stderr
    assert path.read_text().count("\n") == 2


def test_file_of_log_lines_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "FILE_BYTES_MAX", 1_000)
    root = logging.getLogger()
    before = list(root.handlers)
    path = tmp_path / "operator.log"
    start.log_to_file(path)
    try:
        for _ in range(100):
            logging.getLogger("plimsoll.x").warning("x" * 100)
    finally:
        for handler in set(root.handlers) - set(before):
            root.removeHandler(handler)
            handler.close()
    assert sum(one.stat().st_size for one in tmp_path.iterdir()) <= 2_000
