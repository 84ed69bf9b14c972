"""Configures the log output of a local cluster's operator: a file, and the terminal.

The terminal shows warnings only, unless more is asked for. The file has everything from Info on, or
from PLIMSOLL_LOG_LEVEL on, and is bounded. Called by the command line.
"""

from __future__ import annotations

import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

FORMAT = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
FILE_BYTES_MAX = 10 << 20
EARLIER_FILES = 1


def to_terminal(*, verbose: bool) -> None:
    """Log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.INFO if verbose else logging.WARNING)
    handler.setFormatter(FORMAT)
    level = os.environ.get("PLIMSOLL_LOG_LEVEL", "info").upper()
    logging.basicConfig(level=level, handlers=[handler])


def to_file(path: Path) -> None:
    """Also log to a file. Raises OSError."""
    handler = RotatingFileHandler(
        path, maxBytes=FILE_BYTES_MAX, backupCount=EARLIER_FILES, encoding="utf-8"
    )
    handler.setFormatter(FORMAT)
    logging.getLogger().addHandler(handler)
