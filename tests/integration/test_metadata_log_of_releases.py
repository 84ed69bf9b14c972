"""The metadata log's slots, written in turn by the release before and the present one.

Release 0.1 makes all 1,024 at once; the present one makes them some ahead of their use.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.releases import EARLIER, PRESENT, python_path

SCRIPT = Path(__file__).with_name("log_of_releases.py")


@pytest.mark.parametrize(
    "turns",
    [
        ((PRESENT, 20), (EARLIER, 0), (PRESENT, 100), (EARLIER, 60), (PRESENT, 1000)),
        ((EARLIER, 20), (PRESENT, 80), (EARLIER, 1100), (PRESENT, 1000), (EARLIER, 20)),
    ],
    ids=["from-the-present-one", "from-the-one-before"],
)
def test_metadata_log_goes_from_release_to_release_and_back(
    turns: tuple[tuple[str, int], ...], tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"objects": {}, "revision": 100}))
    image: list[str] = []
    for release, count in turns:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(state), str(count)],
            env={**os.environ, "PYTHONPATH": python_path(release)},
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (release, done.stderr)
        said: dict[str, Any] = json.loads(done.stdout)
        assert said["before"] == image, release
        image = said["image"]
        assert said["slots"] <= 1024
    assert said["slots"] == 1024
