"""The pictures of docs/dashboards.md, from a real cluster and a real Prometheus.

`python -m dev.dashboard_pictures` runs `tests/integration/test_prometheus.py`, in which a local
cluster grows, is restarted and drained, and loses a broker and its controller, and takes what that
has drawn.  A test that fails leaves the pictures as they were.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from dev.grafana import ROOT, dashboards

DRAWN = ROOT / ".cache" / "dashboards"
PICTURES = ROOT / "docs" / "pictures"
TEST = "tests/integration/test_prometheus.py"
TEST_S = 900


def main() -> int:
    shutil.rmtree(DRAWN, ignore_errors=True)
    command = [sys.executable, "-m", "pytest", "-q", TEST]
    done = subprocess.run(command, cwd=ROOT, timeout=TEST_S, check=False)
    if done.returncode:
        return done.returncode
    for one in dashboards():
        name = f"dashboard-{one.name}.svg"
        shutil.copyfile(DRAWN / name, PICTURES / name)
        print((PICTURES / name).relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
