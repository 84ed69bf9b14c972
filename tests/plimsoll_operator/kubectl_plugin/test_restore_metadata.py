"""The verb `restore-metadata`: what it shows, and what it writes to confirm a history."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.plimsoll_operator.kubectl_plugin.test_verbs import READY, said, scene
from tests.plimsoll_operator.test_restore_decision import divided

from plimsoll_operator.api.labels import RESTORE_FROM_BACKUP, RESTORE_METADATA
from plimsoll_operator.controller.restore_decision import NotRestored, decide_restore
from plimsoll_operator.kubectl_plugin.shown import Problem
from plimsoll_operator.kubectl_plugin.verbs_recovery import restore_metadata
from plimsoll_operator.status.metadata_restored_condition import offers


def a_session(offered: Any = None) -> Any:
    status = {"conditions": [READY]} | ({} if offered is None else {"metadataRestore": offered})
    cluster = SimpleNamespace(metadata=SimpleNamespace(name="main"), key=("kafka", "main"))
    return scene(status=status, cluster=cluster)


def offered() -> Any:
    found = decide_restore(divided())
    assert isinstance(found, NotRestored)
    return msgspec.to_builtins(offers(found))


async def test_choice_is_shown_with_what_it_gives_up() -> None:
    shown = offered()
    found = await restore_metadata(a_session(shown), None)
    text = said(found)
    assert found.code == 1
    assert "broker 3 followed another history" in text
    assert "Keep the log as it is" in text
    assert "topics with their records t" in text
    assert f"--confirm {shown['choices'][0]['value']}" in text


async def test_confirmation_is_written_as_annotation() -> None:
    shown = offered()
    session = a_session(shown)
    merged: list[Any] = []

    async def merge(kind: Any, namespace: str, name: str, patch: Any) -> Any:
        merged.append((kind.plural, namespace, name, patch["metadata"]["annotations"]))
        return {}

    session.kube.merge = merge
    value = shown["choices"][0]["value"]
    assert value in said(await restore_metadata(session, value))
    assert merged == [("logclusters", "kafka", "main", {RESTORE_METADATA: value})]


async def test_unknown_history_is_refused_with_offers() -> None:
    shown = offered()
    with pytest.raises(Problem, match=shown["choices"][0]["value"]):
        await restore_metadata(a_session(shown), "7-of-something")


async def test_healthy_cluster_has_nothing_to_confirm() -> None:
    found = await restore_metadata(a_session(), None)
    assert found.code == 0
    assert "so there is nothing to confirm." in said(found)


async def test_point_of_backup_is_asked_for_by_annotation() -> None:
    session = a_session()
    merged: list[Any] = []

    async def merge(kind: Any, namespace: str, name: str, patch: Any) -> Any:
        merged.append(patch["metadata"]["annotations"])
        return {}

    session.kube.merge = merge
    for point in ("newest", "120", "2026-11-30T09:00:00Z", "2026-11-30T09:00:00+01:00"):
        assert point in said(await restore_metadata(session, None, point))
        assert merged.pop() == {RESTORE_FROM_BACKUP: point}
    for point in ("yesterday", "-1", "2026-11-30T09:00:00", "1" * 20, ""):
        with pytest.raises(Problem, match="does not name a point of the backup"):
            await restore_metadata(session, None, point)
    assert merged == []


async def test_history_of_backup_is_shown_as_such() -> None:
    choice = {
        "value": "12-abc", "keepsLog": False, "fromBackup": True, "endOffset": 12, "heldBy": [],
        "givesUp": ["Decisions from offset 12 on"],
    }  # fmt: skip
    text = said(await restore_metadata(a_session({"choices": [choice]}), None))
    assert "Restore the backup" in text
    assert "the backup alone" in text
