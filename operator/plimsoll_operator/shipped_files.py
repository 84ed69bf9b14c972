"""Finds the files that are installed beside the code: CRDs, examples, the script for Spark's jars,
and the version.

In a wheel the files are inside the package, in a source tree in its top directory. Called by the
command `plimsoll`, and by the API server in memory for its CRDs.
"""

from __future__ import annotations

from enum import StrEnum
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path

from plimsoll_core.release import RELEASE

_PACKAGE = Path(__file__).resolve().parent
_PLACES = (_PACKAGE, _PACKAGE.parent.parent)


class ExampleName(StrEnum):
    """Names of the shipped examples: their paths without `.yaml`."""

    LOGCLUSTER = "logcluster"
    LOGCLUSTER_OUTSIDE = "logcluster-outside"
    LOGCLUSTER_POOLS = "logcluster-pools"
    LOGCLUSTER_SECURED = "logcluster-secured"
    TOPIC = "topic-orders"
    TOPIC_EXPLICIT = "operations/topic-explicit"
    VERIFICATION = "verification"
    CONTINUOUS = "continuous"
    AUDIT = "audit"
    VERIFICATION_SCHEDULE = "verification-schedule"
    REASSIGNMENT = "operations/reassignment"
    REBALANCE = "operations/rebalance"
    USER = "user"
    USER_ADMIN = "user-admin"
    USER_ORDERS_CHECK = "user-orders-check"
    USER_ORDERS_WRITER = "user-orders-writer"
    USER_CERTIFIED = "user-certified"


def shipped_directory(name: str) -> Path:
    """Return the directory of one kind of shipped files, in the package or else in the source tree.
    `name`: `crds`, `examples` or `spark`. Raises StopIteration if neither has it."""
    return next(place / name for place in _PLACES if (place / name).is_dir())


def working_tree() -> Path | None:
    """Return the top directory of the source tree; None if the package is installed from a
    wheel."""
    return None if (_PACKAGE / "crds").is_dir() else _PACKAGE.parent.parent


def example_text(name: ExampleName) -> str:
    """Return the YAML of one example, ready to apply."""
    return (shipped_directory("examples") / f"{name}.yaml").read_text()


def installed_version() -> str:
    """Return the version of the installed distribution; if none is installed, the release that the
    sources state."""
    try:
        return version_of("plimsoll")
    except PackageNotFoundError:
        return RELEASE
