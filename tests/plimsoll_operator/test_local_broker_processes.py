"""A broker's process of a local cluster: when another one follows it, and when not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from plimsoll_operator.local import broker_pods
from plimsoll_operator.local.broker_pods import TAKEN_STARTS_MAX, BrokerProcess
from plimsoll_operator.local.layout import DirectoryLayout

TAKEN = "Port 19092 of broker 0 is unavailable: Address already in use."


class Ending(BrokerProcess):
    """Each start ends at once with the next code; the last one is the last start's."""

    def __init__(self, root: Path, codes: list[int], port_taken: Callable[[], str]) -> None:
        layout = DirectoryLayout(root)
        layout.prepare()
        super().__init__(0, layout, restart=True, changed=lambda: None, port_taken=port_taken)
        self.codes = codes
        self.starts = 0

    async def _run_once(self) -> int:
        self.starts += 1
        code = self.codes.pop(0)
        if not self.codes:
            await self.stop()
        return code


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_pods, "BACKOFF_MS", 0)
    monkeypatch.setattr(broker_pods, "BACKOFF_MS_MAX", 0)


async def run(process: Ending) -> None:
    async with asyncio.timeout(30):
        await process.run()


async def test_broker_with_occupied_port_gives_up_saying_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process = Ending(tmp_path, [1] * 50, lambda: TAKEN)
    with caplog.at_level(logging.ERROR):
        await run(process)
    assert process.starts == TAKEN_STARTS_MAX
    assert process.ended
    assert process.why == TAKEN
    assert caplog.messages == [
        "the process of broker 0 could not open its port and is not started again; free the port, "
        f"then start `plimsoll local` again: {TAKEN}"
    ]


async def test_broker_with_freed_port_is_restarted(tmp_path: Path) -> None:
    found = [TAKEN, TAKEN, TAKEN, TAKEN, "", TAKEN, TAKEN, TAKEN, TAKEN, ""]
    process = Ending(tmp_path, [1] * len(found), lambda: found.pop(0))
    await run(process)
    assert process.starts == 10
    assert not process.ended, "it was stopped"


async def test_killed_broker_is_restarted_without_port_check(
    tmp_path: Path,
) -> None:
    def looked() -> str:
        raise AssertionError("it was")

    process = Ending(tmp_path, [-9] * 8, looked)
    await run(process)
    assert process.starts == 8
