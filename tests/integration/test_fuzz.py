"""A bounded run of the fuzzer: every API, every version, all ports, the same bytes each time."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz import cluster

FRAMES = 5_000
SEED = 1


def test_damaged_frames_end_no_process(tmp_path: Path) -> None:
    """On commit 0c85aff a request of 33 kB ends the broker (struct.error)."""
    report = cluster.run(tmp_path / "fuzz", FRAMES, SEED)
    assert not report.trouble, "\n".join(report.trouble)
    assert report.outcome.looked_at >= FRAMES
    assert set(report.outcome.closed) == {"clients", "replication", "controller"}
