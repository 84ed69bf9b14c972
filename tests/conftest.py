"""What holds for every test."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is.
settings.register_profile("plimsoll", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("plimsoll")


def pytest_sessionstart() -> None:
    """Nothing that is imported and collected is garbage: looking for some among it again and again
    took a tenth of what a run of the unit tests costs."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What tests leave behind is collected, and nothing else is looked at."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _collected() -> Iterator[None]:
    """What a module leaves behind is collected at its end. What it keeps, such as syntax trees and
    rendered charts, is never looked at again: else each collection in later modules would go
    through millions of objects."""
    gc.collect()
    gc.freeze()
    yield
    gc.collect()


def pytest_sessionfinish() -> None:
    """The fork server ends before its parent: so its processor time counts as the parent's."""
    if forked := sys.modules.get("tests.integration.forked"):
        forked.end()
