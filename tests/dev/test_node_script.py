"""The script of the local node: what it says of a node that does not run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_status_of_stopped_node_is_no_failure(tmp_path: Path) -> None:
    """It ended with the line and the command at which the script had failed."""
    done = subprocess.run(
        [ROOT / "dev" / "node.sh", "status"],
        env={**os.environ, "PLIMSOLL_NODE_ROOT": str(tmp_path / "node")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "kubelet: not running" in done.stdout
    assert done.stdout.endswith("node: not ready\n")
