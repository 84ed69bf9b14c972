"""One fixture that is every shell in turn."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.plimsoll_operator.metalog.shells import DirectoryShell, HttpShell, RingShell, Shell


@pytest.fixture(params=["directory", "ring", "http"])
async def shell(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shell]:
    made: Shell
    if request.param == "directory":
        made = DirectoryShell(tmp_path / "metadata")
    else:
        made = RingShell() if request.param == "ring" else HttpShell()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture(params=["directory", "ring"])
async def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shell]:
    """The shells whose process can be ended at any write."""
    made = RingShell() if request.param == "ring" else DirectoryShell(tmp_path / "metadata")
    yield made
    await made.stop()


@pytest.fixture
async def ring() -> AsyncIterator[RingShell]:
    made = RingShell()
    yield made
    await made.stop()


@pytest.fixture
async def http() -> AsyncIterator[HttpShell]:
    made = HttpShell()
    await made.start()
    yield made
    await made.stop()
