"""The priority of work in the background, within a group of processes and among groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll_process import process_tuning


@pytest.fixture(autouse=True)
def nice(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What was asked for; this process keeps its own."""
    asked: list[int] = []
    monkeypatch.setattr("os.nice", asked.append)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return asked


def test_background_priority_covers_process_and_session(tmp_path: Path, nice: list[int]) -> None:
    session = tmp_path / "autogroup"
    session.write_text("")
    assert process_tuning.work_in_background(session) is None
    assert (nice, session.read_text()) == ([19], "10")


@pytest.mark.parametrize(("busy", "written"), [(19, "10"), (20, None)])
def test_unavailable_session_priority_is_retried_two_seconds(
    monkeypatch: pytest.MonkeyPatch, nice: list[int], busy: int, written: str | None
) -> None:
    said: list[str] = []
    tries = iter(range(100))

    def write(path: Path, text: str) -> None:
        if next(tries) < busy:
            raise BlockingIOError
        said.append(text)

    monkeypatch.setattr(Path, "write_text", write)
    why = process_tuning.work_in_background()
    assert (why is None) == (written is not None)
    assert (nice, said) == ([19], [] if written is None else [written])


def test_kernel_without_priorities_of_sessions_is_fine(tmp_path: Path, nice: list[int]) -> None:
    assert process_tuning.work_in_background(tmp_path / "no such directory" / "autogroup") is None
    assert nice == [19]


def test_session_priority_that_is_refused_is_told(tmp_path: Path, nice: list[int]) -> None:
    why = process_tuning.work_in_background(tmp_path)  # a directory stands for any refusal
    assert why is not None
    assert why.endswith("cannot be written (Is a directory)")
    assert nice == [19]
