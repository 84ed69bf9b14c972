"""Writes the log lines of a process: as text or as JSON, at a level that may change.

Called by the entry points of the operator and of the broker.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Literal

LineFormat = Literal["Text", "Json"]
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
FIELDS = "fields"
"""The attribute of a log record that holds what its sentence says, name by name, for machines."""

logger = logging.getLogger("plimsoll.log_lines")

_TEXT = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")


class JsonLines(logging.Formatter):
    """One JSON object per line; what a record's `fields` say stands beside its message."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(getattr(record, FIELDS, {}) | line)


class LineOutput:
    """The handler of a process's lines.  `started`: the level and the format of its start, which
    hold wherever nothing else is asked for."""

    def __init__(self, handler: logging.Handler, level: str, format_: LineFormat = "Text") -> None:
        self._handler = handler
        self._started = (level.upper(), format_)
        self._now: tuple[str, str] | None = None
        self.write("", "")

    def write(self, level: str, format_: str) -> None:
        """Set the level and the format of later lines. An empty or unknown value restores that of
        the start."""
        started_level, started_format = self._started
        level = level.upper() if level.upper() in LEVELS else started_level
        format_ = format_ if format_ in ("Text", "Json") else started_format
        if (level, format_) == self._now:
            return
        first, self._now = self._now is None, (level, format_)
        logging.getLogger().setLevel(level)
        self._handler.setFormatter(JsonLines() if format_ == "Json" else _TEXT)
        if not first:
            logger.info("lines are written as %s from now on, from level %s", format_, level)
