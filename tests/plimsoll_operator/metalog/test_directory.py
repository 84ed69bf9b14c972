"""What only the directory shell has: a lock, a torn tail, a disk that is full."""

import errno
import os
import stat
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.plimsoll_operator.metalog.shells import CLUSTER_ID
from tests.plimsoll_operator.metalog.writer import Writer, image_of

from plimsoll_operator.metalog.directory import DirectoryLog, batches_path
from plimsoll_operator.metalog.interface import AppendRefused, LogCorrupt, LogUnavailable


async def a_log(path: Path) -> Writer:
    writer = Writer(DirectoryLog(path, CLUSTER_ID))
    await writer.take_over()
    await writer.put("a")
    await writer.put("b")
    return writer


def newest(path: Path) -> Path:
    return max(path.glob("batches-*.jsonl"))


async def test_second_process_is_refused_in_a_sentence(tmp_path: Path) -> None:
    writer = await a_log(tmp_path)
    with pytest.raises(LogUnavailable, match="in use by another process"):
        await DirectoryLog(tmp_path, CLUSTER_ID).open()
    await writer.log.close()
    second = DirectoryLog(tmp_path, CLUSTER_ID)
    assert image_of(await second.open()) == writer.image
    await second.close()


async def test_another_clusters_directory_is_refused(tmp_path: Path) -> None:
    writer = await a_log(tmp_path)
    await writer.log.close()
    other = DirectoryLog(tmp_path, uuid.uuid4())
    with pytest.raises(LogCorrupt, match=f"holds the metadata log of cluster {CLUSTER_ID}"):
        await other.open()
    await other.close()


@pytest.mark.parametrize("kept", [1, 50, -1])
async def test_torn_last_line_is_cut(tmp_path: Path, kept: int) -> None:
    writer = await a_log(tmp_path)
    await writer.log.close()
    path = newest(tmp_path)
    *whole, last, _ = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*whole, last[:kept]]))
    again = Writer(DirectoryLog(tmp_path, CLUSTER_ID))
    await again.take_over()
    assert again.image[:-1] == writer.image[:-1]
    await again.put("c")
    assert image_of(await again.log.open()) == again.image
    await again.log.close()


async def test_last_line_of_garbage_is_cut(tmp_path: Path) -> None:
    """A crash may leave the file's new length without its bytes."""
    writer = await a_log(tmp_path)
    await writer.log.close()
    with newest(tmp_path).open("ab") as file:
        file.write(b"\0" * 300)
    again = DirectoryLog(tmp_path, CLUSTER_ID)
    assert image_of(await again.open()) == writer.image
    await again.close()


async def test_damage_before_the_end_is_reported(tmp_path: Path) -> None:
    writer = await a_log(tmp_path)
    await writer.log.close()
    path = newest(tmp_path)
    data = bytearray(path.read_bytes())
    data[data.index(b'"records"') + 20] ^= 1
    path.write_bytes(data)
    log = DirectoryLog(tmp_path, CLUSTER_ID)
    with pytest.raises(LogCorrupt, match="is damaged at byte 0"):
        await log.open()
    assert path.read_bytes() == data
    await log.close()


async def test_full_disk_refuses_one_batch_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await a_log(tmp_path)
    real = os.pwrite
    written: list[int] = []

    def nearly_full(descriptor: int, data: Any, offset: int) -> int:
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(real(descriptor, data[:100], offset))
        return written[0]

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", nearly_full)
        with pytest.raises(AppendRefused, match="No space left on device"):
            await writer.put("refused")
    await writer.put("accepted")
    assert writer.image[1:] == ["a", "b", "accepted"]
    assert image_of(await writer.log.open()) == writer.image
    await writer.log.close()


async def test_release_starts_new_file_and_removes_old(tmp_path: Path) -> None:
    writer = await a_log(tmp_path)
    for text in ("c", "d", "e"):
        await writer.snapshot()
        await writer.put(text)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len([name for name in names if name.startswith("batches")]) == 2
    assert len([name for name in names if name.startswith("snapshot")]) == 1
    assert image_of(await writer.log.open()) == writer.image
    await writer.log.close()


async def test_directory_log_files_are_readable_text(tmp_path: Path) -> None:
    writer = await a_log(tmp_path)
    line = newest(tmp_path).read_text().splitlines()[1]
    assert '"records":[{"broker_ids":[],"cause":"a","type":"MembersChanged"}]' in line
    await writer.log.close()


async def test_log_opens_while_cancelled_snapshot_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await a_log(tmp_path)
    await writer.log.close()
    leftover = tmp_path / "snapshot.tmp"
    leftover.write_bytes(b"x")
    unlink = Path.unlink

    def late(self: Path, missing_ok: bool = False) -> None:
        if self == leftover:
            leftover.rename(tmp_path / "renamed")
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", late)
    again = DirectoryLog(tmp_path, CLUSTER_ID)
    assert image_of(await again.open()) == writer.image
    await again.close()


async def test_log_survives_power_cut_after_unsynced_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await a_log(tmp_path)
    await writer.log.close()
    durable = set(os.listdir(tmp_path))
    batches_path(tmp_path, writer.tip.next_sequence).touch()  # by a release
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            durable.update(os.listdir(descriptor))

    monkeypatch.setattr(os, "fsync", watched)
    again = Writer(DirectoryLog(tmp_path, CLUSTER_ID))
    await again.take_over()
    await again.put("c")
    await again.log.close()
    for path in tmp_path.iterdir():
        if path.name not in durable:
            path.unlink()
    last = DirectoryLog(tmp_path, CLUSTER_ID)
    assert image_of(await last.open()) == again.image
    await last.close()
