"""What holds for every test."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.long_tests import LongTests

# How long an example takes says how busy the machine is.
settings.register_profile("plimsoll", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("plimsoll")


LONG_TESTS = pytest.StashKey[LongTests]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "stacks_after_s", "Seconds after which a test's stacks are printed", default="120"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LONG_TESTS] = LongTests(float(config.getini("stacks_after_s")))


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[LONG_TESTS].begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[LONG_TESTS].end()


def pytest_sessionstart() -> None:
    """Nothing that is imported and collected is garbage: looking for some among it again and again
    took a tenth of what a run of the unit tests costs."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What tests leave behind is collected, and nothing else is looked at."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def processor_time(record_testsuite_property: Callable[[str, object], None]) -> Iterator[None]:
    """The report says what the tests and their children cost, in seconds of a processor."""
    yield
    if forked := sys.modules.get("tests.integration.forked"):
        forked.end()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    record_testsuite_property("processor_s", round(sum(u.ru_utime + u.ru_stime for u in used)))
