"""The container's limits, and how its memory and processors are divided."""

from pathlib import Path

import pytest

from plimsoll_spark.cgroup import MEBIBYTE, Limits, limits, processes_killed


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_", ".", 1)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_limits_of_version_two_are_read(tmp_path: Path) -> None:
    write(tmp_path, memory_max=str(2048 * MEBIBYTE), cpu_max="50000 100000")
    assert limits(tmp_path) == Limits(memory_bytes=2048 * MEBIBYTE, cores=1)


def test_limits_of_version_one_are_read(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "cpu").mkdir()
    (tmp_path / "memory/memory.limit_in_bytes").write_text("1073741824\n")
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("100000\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert limits(tmp_path) == Limits(memory_bytes=1024 * MEBIBYTE, cores=1)


def test_absent_limits_are_none(tmp_path: Path) -> None:
    write(tmp_path, memory_max="max", cpu_max="max 100000")
    found = limits(tmp_path)
    assert (found.memory_bytes, found.heap_mb) == (None, None)
    assert found.tasks >= 2
    assert limits(tmp_path / "nothing") == found


@pytest.mark.parametrize(
    ("memory_mb", "cores", "heap_mb", "tasks"),
    [
        (512, 8, 256, 0),
        (768, 8, 256, 1),
        (1024, 8, 256, 2),
        (2048, 1, 512, 2),
        (2048, 8, 512, 6),
        (16384, 64, 2048, 8),
    ],
)
def test_memory_and_cores_bound_heap_and_tasks(
    memory_mb: int, cores: int, heap_mb: int, tasks: int
) -> None:
    found = Limits(memory_bytes=memory_mb * MEBIBYTE, cores=cores)
    assert (found.heap_mb, found.tasks) == (heap_mb, tasks)


def test_kernel_tells_killed_processes(tmp_path: Path) -> None:
    assert processes_killed(tmp_path) == 0
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\noom 3\noom_kill 2\n")
    assert processes_killed(tmp_path) == 2
