"""How many runs on a healthy cluster are told as Violated or Inconclusive: none should be.

    python -m bench.healthy_runs [--runs 50] [--records 5000]

All runs share a local cluster of three brokers and one JVM; each has a topic of its own. Acks,
idempotence and compression alternate. An audit of every replica of all topics follows. It prints
each verdict other than Passed, and then the number of each verdict.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from tests.integration.local_cluster import LocalCluster

from plimsoll_spark.audit import Audit
from plimsoll_spark.audit_settings import AuditSettings
from plimsoll_spark.evidence import Evidence
from plimsoll_spark.publish import publisher_for
from plimsoll_spark.run import Run
from plimsoll_spark.settings import Settings
from plimsoll_spark.values import Outcome

PARTITIONS = 3
START_S = 300.0
DEADLINE_S = 1800
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"compression": "Zstd"},
    {"acks": "All", "idempotent": False},
    {"acks": "Leader"},
    {"acks": "None"},
)


def run(local: LocalCluster, number: int, produce: dict[str, Any], directory: Path) -> Outcome:
    """Write to a topic of its own, check it, and return the outcome."""
    topic = f"healthy-{number}"
    local.create_topic(topic, PARTITIONS, {"min.insync.replicas": "2"})
    local.wait_isr(topic, 3, START_S)
    asked = {
        "name": topic,
        "bootstrap": local.bootstrap,
        "topic": topic,
        "produce": produce,
        "deadlineSeconds": DEADLINE_S,
        "report": {"directory": str(directory / "report")},
    }
    settings = msgspec.convert(asked, Settings)
    work = directory / "work"
    work.mkdir(parents=True)
    evidence = Evidence(settings, work, None)
    return Run(settings, publisher_for(settings.report), work, evidence).execute()


def audit(local: LocalCluster, directory: Path) -> Outcome:
    """Audit all topics on every replica, and return the outcome."""
    asked = {
        "name": "all",
        "bootstrap": local.bootstrap,
        "source": {"existingTopics": {"matchPattern": "healthy-.*"}},
        "deadlineSeconds": DEADLINE_S,
        "report": {"directory": str(directory / "report")},
    }
    settings = msgspec.convert(asked, AuditSettings)
    work = directory / "work"
    work.mkdir(parents=True)
    return Audit(settings, publisher_for(settings.report), work).execute()


def main() -> int:
    """Return 0 if every run passed, and the audit too."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--records", type=int, default=5_000)
    options = parser.parse_args()
    verdicts: Counter[str] = Counter()
    with TemporaryDirectory() as name:
        local = LocalCluster(Path(name, "data"))
        local.start(START_S)
        try:
            for number, kind in enumerate(islice(cycle(KINDS), options.runs)):
                produce = {"records": options.records, "recordBytes": 200, **kind}
                outcome = run(local, number, produce, Path(name, f"run-{number}"))
                verdicts[outcome.verdict] += 1
                load = f"load {os.getloadavg()[0]:.0f}"
                if outcome.verdict != "Passed":
                    print(f"run {number} {kind} ({load}): {outcome.reason}: {outcome.message}")
                print(f"{number + 1} runs, {load}: {dict(verdicts)}", flush=True)
            outcome = audit(local, Path(name, "audit"))
            print(f"audit of every replica: {outcome.verdict}: {outcome.message}")
        finally:
            local.stop()
    return 0 if set(verdicts) <= {"Passed"} and outcome.verdict == "Passed" else 1


if __name__ == "__main__":
    sys.exit(main())
