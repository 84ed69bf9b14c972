"""A local cluster that runs the code of another checkout of Plimsoll."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCES = ("core", "operator", "broker_image", "spark", "sim")
HERE = Path(__file__).parents[1]


@contextmanager
def code_of(checkout: Path) -> Iterator[None]:
    """What is started meanwhile imports the packages of `checkout`."""
    kept = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(str(checkout / name) for name in SOURCES)
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH")
        if kept is not None:
            os.environ["PYTHONPATH"] = kept
