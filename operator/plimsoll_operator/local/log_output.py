"""Where a local cluster's operator writes its log lines: a file, and the terminal.

The terminal is for who types: warnings alone, unless asked for more.  The file has everything from
Info on, or what PLIMSOLL_LOG_LEVEL says, and is bounded.  Called by the command line.
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
    """Standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.INFO if verbose else logging.WARNING)
    handler.setFormatter(FORMAT)
    level = os.environ.get("PLIMSOLL_LOG_LEVEL", "info").upper()
    logging.basicConfig(level=level, handlers=[handler])


def to_file(path: Path) -> None:
    """Beside the terminal.  Raises OSError."""
    handler = RotatingFileHandler(
        path, maxBytes=FILE_BYTES_MAX, backupCount=EARLIER_FILES, encoding="utf-8"
    )
    handler.setFormatter(FORMAT)
    logging.getLogger().addHandler(handler)
