"""`make pyspark` uses another PySpark, and the documents name the versions that were tested."""

from __future__ import annotations

from pathlib import Path

import pytest
from dev import pyspark

PINNED = "pyspark=="


def test_documents_name_the_tested_versions() -> None:
    lines = (pyspark.ROOT / "constraints.txt").read_text().splitlines()
    (pinned,) = (one.removeprefix(PINNED) for one in lines if one.startswith(PINNED))
    page = (pyspark.ROOT / "docs" / "verification.md").read_text()
    assert f"PySpark {pinned} and {pyspark.NEWEST}" in page


def test_environment_layers_pyspark_above_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "newest" / "lib" / "python3.11" / "site-packages"
    ran: list[list[str]] = []
    monkeypatch.setattr("venv.create", lambda place, with_pip: packages.mkdir(parents=True))
    monkeypatch.setattr("subprocess.run", lambda command, **_: ran.append(command))
    for _ in range(2):
        python = pyspark.layered(tmp_path / "newest", "4.9.0")
    assert python == tmp_path / "newest" / "bin" / "python"
    assert [command[-1] for command in ran] == ["pyspark==4.9.0"], "the second time it is there"
    (layer,) = packages.glob("*.pth")
    assert str(pyspark.ROOT / ".venv") in layer.read_text()
