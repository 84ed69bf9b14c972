"""The operator's log level follows a file while the process runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll_operator.process import log_level
from plimsoll_process.log_lines import LineOutput

WAIT_S = 30


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    monkeypatch.setattr(log_level, "LOOK_S", 0.01)
    before = logging.getLogger().level
    yield Told()
    logging.getLogger().setLevel(before)


class Told(LineOutput):
    """Tells of every look at the file."""

    def __init__(self) -> None:
        self.looked = asyncio.Event()
        super().__init__(logging.NullHandler(), "warning", "Json")

    def write(self, level: str, format_: str) -> None:
        super().write(level, format_)
        self.looked.set()

    async def reached(self, level: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while logging.getLogger().level != level:
                self.looked.clear()
                await self.looked.wait()


async def test_log_level_follows_file_or_default(tmp_path: Path, output: Told) -> None:
    path = tmp_path / "level"
    task = asyncio.create_task(log_level.follow(path, output))
    try:
        await output.reached(logging.WARNING)
        path.write_text("debug\n")
        await output.reached(logging.DEBUG)
        path.write_text("error")
        await output.reached(logging.ERROR)
        path.write_bytes(b"\xff loud" * 1_000)
        await output.reached(logging.WARNING)
        path.write_text("info")
        await output.reached(logging.INFO)
        path.unlink()
        await output.reached(logging.WARNING)
    finally:
        task.cancel()
        await asyncio.wait([task])
