"""What a restore hears of a backup that cannot be read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.plimsoll_operator.builders import a_cluster
from tests.plimsoll_operator.test_group_commit import CLUSTER

from plimsoll_operator.backup.backup_stores import DirectoryBackup, StoredName
from plimsoll_operator.leadership.cluster_backup import ClusterBackup
from plimsoll_operator.leadership.process_parts import Parts


async def test_backup_that_breaks_its_reader_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stored(_: DirectoryBackup) -> list[StoredName]:
        raise AttributeError("of a kind that nobody foresaw")

    monkeypatch.setattr(DirectoryBackup, "stored", stored)
    parts = SimpleNamespace(
        now_ms=lambda: 0,
        monotonic_ms=lambda: 0,
        kube=None,
        backup_directory=tmp_path,
        make_bucket=None,
    )
    cluster = a_cluster(backup={})
    backup = ClusterBackup(cast("Parts", parts), lambda: cluster, CLUSTER, lambda: None)
    offer = await backup.read()
    assert offer is not None
    assert offer.copy is None
    assert "internal error of the operator: AttributeError" in offer.why
