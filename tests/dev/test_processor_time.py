"""What a run of the tiers cost the machine, beyond what its own processes know of."""

import os
import shutil
import time
from pathlib import Path

import pytest
from dev import processor_time
from dev.processor_time import PodsSeen, Reading, read, told


def test_reading_counts_what_a_process_computes() -> None:
    before, until = read(), time.process_time() + 0.3
    while time.process_time() < until:
        pass
    after = read()
    # The kernel counts in hundredths of a second.
    assert after.busy - before.busy > 0.2
    assert after.idle >= before.idle


def test_program_of_the_node_counts_while_its_file_names_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor_time, "NODE_RUN", tmp_path)
    stat = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()
    (tmp_path / "etcd.pid").write_text(f"{os.getpid()} {stat[19]}\n")
    (tmp_path / "proxy.pid").write_text(f"{os.getpid()} 1\n")
    (tmp_path / "kubelet.pid").write_text("")
    (tmp_path / "gone.pid").write_text("999999999 7\n")
    node = read().node
    assert set(node) == {("etcd", str(os.getpid()))}
    assert node["etcd", str(os.getpid())] > 0


@pytest.mark.parametrize("word", ["", "usage_usec "])
def test_pods_count_by_either_version_of_cgroups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    usage = tmp_path / "usage"
    usage.write_text(f"{word}2500000\nuser_usec 1\n")
    monkeypatch.setattr(processor_time, "PODS", ((tmp_path / "none", "", 1.0), (usage, word, 1e6)))
    assert read().pods == 2.5


def test_line_tells_everything_apart_and_a_restarted_program_by_itself() -> None:
    before = Reading(
        busy=100, idle=50, stolen=1, pods=10, node={("etcd", "7"): 5.0, ("kubelet", "8"): 90.0}
    )
    after = Reading(
        busy=200, idle=60, stolen=3, pods=30, node={("etcd", "7"): 15.0, ("kubelet", "9"): 2.0}
    )
    assert told(before, after, 40.4) == (
        "processors, in seconds: busy 100 (tiers 40, pods 20, the node 12: etcd 10, kubelet 2;"
        " others 28), idle 10, stolen 2"
    )
    assert "pods 20: driver 12, broker 7; the node 12: etcd" in told(
        before, after, 40.4, {"broker": 7.4, "driver": 12.0, "pause": 0.2}
    )


def test_pod_that_has_gone_counts_with_what_was_last_seen_of_it_by_its_containers_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, groups = tmp_path / "logs", tmp_path / "kubepods"
    monkeypatch.setattr(processor_time, "POD_LOGS", logs)
    monkeypatch.setattr(processor_time, "PODS", ((groups / "usage", "", 1.0),))

    def used(pod: str, seconds: int, *containers: str) -> None:
        (groups / pod).mkdir(parents=True, exist_ok=True)
        (groups / pod / "usage").write_text(f"{seconds}\n")
        folder = logs / f"a-namespace_a-name_{pod.rpartition('pod')[2]}"
        for name in containers:
            (folder / name).mkdir(parents=True, exist_ok=True)

    used("burstable/podu-1", 100, "broker")
    seen = PodsSeen()
    used("burstable/podu-1", 107)
    used("podu-2", 5)
    seen.look()
    used("podu-2", 9, "one", "another")
    used("besteffort/podu-3", 2, "broker")
    seen.look()
    shutil.rmtree(groups / "burstable")
    used("besteffort/podu-3", 3)
    seen.look()
    assert seen.by_containers() == {"broker": 10.0, "another+one": 9.0}
