"""How the process ends, and what it says."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from plimsoll_broker import __main__ as entry
from plimsoll_broker.config import BrokerConfig

CONFIG = """
{"cluster_id": "7f3d9c3e-6c54-4c58-8f0e-2d6b36f0a001", "broker_id": 0, "data_dir": "%s",
 "listen": {"host": "127.0.0.1", "port": 1}, "advertised": {"host": "127.0.0.1", "port": 1},
 "replication": {"host": "127.0.0.1", "port": 2},
 "controllers": ["127.0.0.1:1"]}
"""


class Node:
    """Ends as a real one does, when it is told that it cannot go on."""

    def __init__(self, config: BrokerConfig, *, cleaning: object) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, error: BaseException) -> None:
        self.ended.set_exception(error)

    def stop(self) -> None:
        pass

    holds = None

    async def run(self) -> None:
        asyncio.get_running_loop().call_soon(self.bug)
        await self.ended

    def bug(self) -> None:
        raise AssertionError("a bug in a callback")


def test_bug_in_callback_ends_process_with_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "config.json"
    config.write_text(CONFIG % tmp_path)
    monkeypatch.setattr(entry, "BrokerNode", Node)
    monkeypatch.setattr(sys, "argv", ["plimsoll_broker", "--config", str(config)])
    assert entry.main() == 1
    assert "the broker exits because of an internal error" in caplog.text
    assert "AssertionError: a bug in a callback" in caplog.text


class Refused(Node):
    """Its volume is another broker's."""

    async def run(self) -> None:
        raise entry.CannotStart("ForeignVolume: /data belongs to broker 1, this is broker 0")


def test_refused_start_leaves_termination_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, said = tmp_path / "config.json", tmp_path / "termination-log"
    config.write_text(CONFIG % tmp_path)
    said.write_text("")
    monkeypatch.setattr(entry, "TERMINATION_MESSAGE", said)
    monkeypatch.setattr(entry, "BrokerNode", Refused)
    monkeypatch.setattr(sys, "argv", ["plimsoll_broker", "--config", str(config)])
    assert entry.main() == entry.FINAL
    assert said.read_text() == "ForeignVolume: /data belongs to broker 1, this is broker 0"
    monkeypatch.setattr(entry, "TERMINATION_MESSAGE", tmp_path / "absent")
    assert entry.main() == entry.FINAL
    assert not (tmp_path / "absent").exists()


def test_event_loop_has_its_turn_soon_beside_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.json"
    config.write_text(CONFIG % tmp_path)
    asked: list[float] = []
    monkeypatch.setattr(sys, "setswitchinterval", asked.append)
    monkeypatch.setattr(entry, "BrokerNode", Node)
    monkeypatch.setattr(sys, "argv", ["plimsoll_broker", "--config", str(config)])
    entry.main()
    assert asked, "by default it waits for 5 ms and more after each system call"
    assert max(asked) <= 0.001
