"""Log lines: their level and form change while a process runs, and no storm of them comes."""

import json
import logging

import pytest

from plimsoll_process.log_lines import LineOutput
from plimsoll_process.state_change_lines import (
    LINES_MAX,
    LINES_MAX_DEBUG,
    StateChangeLines,
    logger,
)


class Kept(logging.Handler):
    """What would have been written."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def kept():
    root, handler = logging.getLogger(), Kept()
    level = root.level
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


def test_line_output_changes_and_restores_its_level(kept):
    output = LineOutput(kept, "warning")
    logging.getLogger("x").info("not told")
    output.write("Debug", "Json")
    logging.getLogger("x").debug("told", extra={"fields": {"broker": 1, "message": "no"}})
    output.write("", "")
    logging.getLogger("x").info("not told")
    changed, line = map(json.loads, kept.lines)
    assert changed["message"] == (
        "the log settings changed: this process now writes log lines in format Json, of level "
        "DEBUG and above"
    )
    found = line
    assert (found["level"], found["message"], found["broker"]) == ("debug", "told", 1)


def test_line_output_ignores_unknown_requests(kept):
    output = LineOutput(kept, "info")
    output.write("Trace", "Xml")
    logging.getLogger("x").info("told")
    assert kept.lines[0].endswith("INFO x told")


@pytest.mark.parametrize(
    ("level", "most"), [(logging.INFO, LINES_MAX), (logging.DEBUG, LINES_MAX_DEBUG)]
)
def test_state_change_lines_are_bounded_per_second(kept, monkeypatch, level, most):
    monkeypatch.setattr(logger, "level", level)
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    now_ms = [0]
    lines = StateChangeLines(lambda: now_ms[0])

    def storm(count: int) -> None:
        for _ in range(count):
            if lines.room:
                lines.write("a line", {})

    storm(most + 7)
    assert kept.lines == ["a line"] * most
    now_ms[0] = 1_000
    storm(1)
    told = (
        "7 more state changes of partitions happened within the same second and are left out of "
        "this log"
    )
    assert kept.lines[most:] == [told, "a line"]
    logger.manager._clear_cache()  # type: ignore[attr-defined]
