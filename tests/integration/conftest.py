"""Everything here starts real processes on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.local_cluster import LocalCluster
from tests.kafka_python import left_sockets

HERE = f"{Path(__file__).parent}/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(autouse=True)
def collected_sockets(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect what kafka-python left: the collector may come in a test that does not use it."""
    yield
    if any(_is_of_kafka_python(one) for one in vars(request.module).values()):
        with left_sockets():
            pass


def _is_of_kafka_python(imported: object) -> bool:
    named = (getattr(imported, name, None) for name in ("__module__", "__name__"))
    return any(str(name).partition(".")[0] == "kafka" for name in named)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers that are restarted when they die."""
    with LocalCluster(tmp_path / "cluster") as running:
        yield running


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failed test shows what the processes said."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    for fixture in getattr(item, "funcargs", {}).values():
        if report.when == "call" and report.failed and isinstance(fixture, LocalCluster):
            report.sections.append(("cluster", fixture.said()))
