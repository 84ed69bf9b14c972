"""`make demo`: a cluster on this machine, a broker killed in mid-write, and the verdict.

`plimsoll local` runs the operator with `examples/` applied, three broker processes, and Spark as in
a Verification's pod. Broker 0 is killed with SIGKILL while Spark writes. The demo ends with a
non-zero exit code if a check failed, and stops what it started; with --keep the cluster goes on
running. It needs `make setup`, and uses loopback only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import IO, Any

import yaml
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from dev.demo_steps import (
    CLUSTER,
    TOPIC,
    VERIFICATION,
    VICTIM,
    Steps,
    Story,
    View,
    console,
    kill_and_judge,
    wait,
)
from dev.kubectl import ROOT, GaveUp
from dev.local_api import LocalApi

DIRECTORY = ROOT / "build" / "demo"
EXAMPLES = ("logcluster.yaml", "topic-orders.yaml", "verification.yaml")
STEPS = 8
AUDIT = "orders-audit"
AUDIT_S = 300
START_S = 130
"""Seconds that the demo waits for the start. `plimsoll local` gives up earlier by itself, and says
why."""
STOP_S = 60
JARS_S = 560
METADATA_S = 2
LINE_BYTES_MAX = 1 << 20
NAMESPACE = "default"
TOPICS_NAMED = 5
LOG_FOLDER = re.compile(r"(.+)-\d+")
"""Matches the folder of a partition's log, as Kafka names it. The folder of a log that was set
aside has a suffix and does not match."""


class LocalDemo:
    """The `DemoCluster` that `plimsoll local` runs in `directory`."""

    def __init__(self, directory: Path, *, keep: bool) -> None:
        """Create a cluster that is not started yet. `keep`: True if the cluster may outlive this
        process."""
        self.directory = directory
        self.ready: dict[str, Any] = {}
        self._keep = keep
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: AdminClient | None = None
        # The pid that was killed.
        self._killed: int | None = None

    # --- start and stop ---------------------------------------------------------------------------

    @property
    def said(self) -> Path:
        """Return the path of the file with the standard error of `plimsoll local`."""
        return self.directory / "logs" / "plimsoll.log"

    @property
    def command(self) -> list[str]:
        files = [word for name in EXAMPLES for word in ("-f", str(ROOT / "examples" / name))]
        local = [*("-m", "plimsoll_operator.cli", "local", "--data", str(self.directory)), *files]
        if self._keep:
            return [sys.executable, *local]
        ends_with_us = [sys.executable, "-m", "plimsoll_process.parent", str(os.getpid())]
        return [*ends_with_us, sys.executable, *local]

    def start(self, jars: Path) -> None:
        """Start the cluster and wait until clients can connect. Raises GaveUp with the last lines
        of its output."""
        self.said.parent.mkdir(parents=True)
        with tempfile.TemporaryFile() as announced, self.said.open("wb") as stderr:
            self._start(announced, stderr, jars)
        # It would print messages about brokers that are gone.
        config = {"bootstrap.servers": self.ready["bootstrap"], "log_level": 0}
        self._admin = AdminClient(config)

    def _start(self, announced: IO[bytes], stderr: IO[bytes], jars: Path) -> None:
        """Start `plimsoll local`, and wait until it is ready. `announced`: the file to which it
        writes its line when it is ready."""
        # In a session of its own: this process handles Ctrl-C.
        process = self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=announced,
            stderr=stderr,
            env={**os.environ, "PLIMSOLL_SPARK_JARS": str(jars)},
            start_new_session=True,
        )

        def ready() -> dict[str, Any] | None:
            if process.poll() is not None:
                lines = self.said.read_text(errors="replace").splitlines()
                raise GaveUp(
                    f"plimsoll local ended: {lines[-1] if lines else 'without any output'}"
                )
            line = os.pread(announced.fileno(), LINE_BYTES_MAX, 0)
            return json.loads(line) if line.endswith(b"\n") else None

        self.ready = wait("brokers that take part", ready, START_S, every_s=0.1)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Stop the cluster with SIGTERM, and kill what does not end in time. Nothing of it runs
        afterwards."""
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            wait("the brokers' clean stop", process.poll, STOP_S, every_s=0.1)
        finally:
            process.kill()  # nothing, when it has ended; else brokers and driver go with it
            process.wait()

    # --- what is asked of it ----------------------------------------------------------------------

    def view(self) -> View | None:
        """Return leaders and ISRs as a Kafka client sees them, or None if no broker answers."""
        assert self._admin is not None
        try:
            found = self._admin.list_topics(TOPIC, timeout=METADATA_S).topics[TOPIC].partitions
        except KafkaException:
            return None
        return View(
            at=time.time(),
            leaders={p: one.leader if one.leader >= 0 else None for p, one in found.items()},
            isr={p: list(one.isrs) for p, one in found.items()},
            replicas={p: list(one.replicas) for p, one in found.items()},
        )

    def verification(self) -> dict[str, Any]:
        path = f"/apis/plimsoll.dev/v1alpha1/namespaces/{NAMESPACE}/verifications/{VERIFICATION}"
        return self._get(path).get("status") or {}

    def begin_audit(self) -> None:
        """Create the Verification of `examples/audit.yaml`, without its limit on reads."""
        body = yaml.safe_load((ROOT / "examples" / "audit.yaml").read_text())
        del body["spec"]["source"]["bytesPerSecond"]
        path = f"/apis/plimsoll.dev/v1alpha1/namespaces/{NAMESPACE}/verifications"
        LocalApi(self.directory).ask("POST", path, body)

    def audit(self) -> dict[str, Any]:
        """Return the audit's status; {} while it has none."""
        path = f"/apis/plimsoll.dev/v1alpha1/namespaces/{NAMESPACE}/verifications/{AUDIT}"
        return self._get(path).get("status") or {}

    def kill_broker(self) -> None:
        self._killed = self.broker_pid()
        assert self._killed is not None
        os.kill(self._killed, signal.SIGKILL)

    def broker_pid(self) -> int | None:
        """Return the process id of the broker that is to be killed, or None while it does not
        run."""
        pids = json.loads((self.directory / "pids.json").read_text())
        found: int | None = pids.get(str(VICTIM))
        return found

    def restarted_at(self, killed_at: float) -> float | None:
        return time.time() if self.broker_pid() not in (None, self._killed) else None

    def report(self) -> dict[str, str]:
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{VERIFICATION}-report"
        data: dict[str, str] = self._get(path).get("data") or {}
        return data

    def _get(self, path: str) -> dict[str, Any]:
        """Return the object at a path of the local API server, or {} if it does not exist or the
        server does not answer."""
        try:
            found: dict[str, Any] = LocalApi(self.directory).ask("GET", path)[1]
        except OSError:
            return {}
        return found


def spark_jars() -> Path:
    """Return the folder of Spark's Kafka connector; fetch it if it is missing. Raises GaveUp."""
    with subprocess.Popen([ROOT / "spark" / "jars.sh"], stdout=subprocess.PIPE) as fetching:
        try:
            code = wait("Maven", fetching.poll, JARS_S, every_s=0.1)
        finally:
            fetching.terminate()
        assert fetching.stdout is not None
        lines = fetching.stdout.read().decode().splitlines()
    if code:
        raise GaveUp("spark/jars.sh could not fetch Spark's Kafka connector")
    return Path(lines[-1])


def kept_before(directory: Path) -> int | None:
    """Return the process id of a `plimsoll local` that an earlier demo left running over the
    directory, or None."""
    try:
        pid = int(json.loads((directory / "pids.json").read_text())["controller"])
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError, KeyError):
        return None
    return pid if str(directory).encode() in words and b"local" in words else None


def own_topics(directory: Path) -> list[str]:
    """Return the topics in the directory that were not made by a demo, without internal topics."""
    found = {LOG_FOLDER.fullmatch(path.name) for path in directory.glob("broker-*/*")}
    names = {match[1] for match in found if match}
    return sorted(name for name in names if name != TOPIC and not name.startswith("__"))


def check_nothing_is_lost(directory: Path) -> None:
    """Raise GaveUp if `clear` would delete data in the directory that is not the demo's."""
    topics, pid = own_topics(directory), kept_before(directory)
    if not topics:
        return
    more = f" and {len(topics) - TOPICS_NAMED} more" if len(topics) > TOPICS_NAMED else ""
    stop = f"stop its cluster (kill {pid}) and " if pid is not None else ""
    raise GaveUp(
        f"{directory} holds topics that are not the demo's: {', '.join(topics[:TOPICS_NAMED])}"
        f"{more}. To keep them, {stop}move the folder away; to throw them away, {stop}remove it:"
        f" rm -r {directory}"
    )


def clear(directory: Path) -> None:
    """Delete the directory's contents, so that each demo has a new cluster. Stop a cluster that an
    earlier demo left running. Call `check_nothing_is_lost` before."""
    pid = kept_before(directory)
    if pid is not None:
        console.print(f"  stopping the cluster that an earlier demo has kept (pid {pid})")
        os.kill(pid, signal.SIGTERM)
        wait("its end", lambda: kept_before(directory) is None or None, STOP_S, every_s=0.1)
    shutil.rmtree(directory, ignore_errors=True)


def has_browser(environment: Mapping[str, str]) -> bool:
    """Return True if a report can be shown in a window. A browser in the terminal does not count,
    since it would take over the terminal."""
    return sys.platform == "darwin" or bool(
        environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    )


def save_report(demo: LocalDemo) -> Path:
    """Save Spark's report to a file and return its path. Open it in a browser if there is one and
    the output is a terminal."""
    path = demo.directory / "report.html"
    path.write_text(demo.report().get("report.html", ""))
    if sys.stdout.isatty() and has_browser(os.environ):
        webbrowser.open(path.as_uri())
    return path


def what_next(demo: LocalDemo, report: Path, *, keep: bool) -> list[str]:
    """Return lines for the user that say how to go on."""
    directory = demo.directory.relative_to(ROOT)
    files = [word for name in EXAMPLES for word in ("-f", f"examples/{name}")]
    first = str(demo.ready["bootstrap"]).partition(",")[0]
    started = f".venv/bin/plimsoll local --data {directory} {' '.join(files)}"
    lines = [f"Spark's report: {report.relative_to(ROOT)}"]
    if keep:
        lines += [f"the cluster runs on; kill {demo.pid} stops it, and this starts it again:"]
    else:
        lines += ["the same cluster again, with its records, until Ctrl-C:"]
    objects = "examples/operations"
    return [
        *lines,
        f"  {started}",
        "the next make demo deletes it, unless it holds a topic that you made;"
        " to keep it, move the folder when it is stopped",
        "metrics, for Prometheus, at the same addresses after the next start:",
        *(f"  {url}  ({_whose(name)})" for name, url in demo.ready["metrics"].items()),
        "any Kafka client against it, in another terminal:",
        f"  kcat -b {first} -L",
        f"  kcat -b {first} -t {TOPIC} -C -o -2 -c 10 -f '%p %o %S bytes\\n'",
        "two more brokers, filled by a Rebalance that waits for your approval; replicas moved:",
        f"  export KUBECONFIG={directory}/kubeconfig",
        f"  kubectl patch logcluster {CLUSTER} --type merge "
        """-p '{"spec": {"brokers": {"count": 5}}}'""",
        "  kubectl get rebalances -w    # until AwaitingApproval, some 15 s later; then Ctrl-C",
        "  hash=$(kubectl get rebalance main-fill-3-4 -o jsonpath='{.status.plan.hash}')",
        "  kubectl patch rebalance main-fill-3-4 --type merge "
        """-p "{\\"spec\\": {\\"approvedPlan\\": \\"$hash\\"}}" """.rstrip(),
        f"  kubectl apply -f {objects}/reassignment.yaml",
        "the same on a real Kubernetes:",
        "  make demo-kubernetes",
    ]


def _whose(metrics: str) -> str:
    """Return the name under which `plimsoll local` shows the broker with these metrics."""
    return f"broker {metrics}" if metrics.isdigit() else f"the {metrics}"


def run(demo: LocalDemo, story: Story, *, keep: bool) -> None:
    """Run the whole demo. The cluster still runs afterwards. Raises GaveUp."""
    check_nothing_is_lost(demo.directory)
    steps = Steps(STEPS)
    steps.say("Spark's Kafka connector, which spark/jars.sh fetches once, in half a minute", 1)
    jars = spark_jars()
    names = " ".join(f"-f examples/{name}" for name in EXAMPLES)
    steps.say(f"a controller and three brokers: plimsoll local {names}", 5)
    clear(demo.directory)
    demo.start(jars)
    console.print(f"  clients connect to {demo.ready['bootstrap']}")
    console.print(f"  logs are in {demo.said.parent.relative_to(ROOT)}")
    kill_and_judge(demo, story, steps)
    audit(demo, story, steps)
    steps.say("what to type next:")
    for line in what_next(demo, save_report(demo), keep=keep):
        console.print(f"  {line}", markup=False, soft_wrap=True)


def audit(demo: LocalDemo, story: Story, steps: Steps) -> None:
    """Audit what was written on every replica's disk. Raises GaveUp."""
    steps.say("an audit of what was written, on every replica's disk: examples/audit.yaml", 15)
    demo.begin_audit()

    def verdict() -> dict[str, Any] | None:
        status = demo.audit()
        return status if status.get("verdict") else None

    status = wait("the audit's verdict", verdict, AUDIT_S)
    amounts = status.get("audited") or {}
    console.print("  " + ", ".join(f"{name} {value:,}" for name, value in amounts.items()))
    ready = next((one for one in status["conditions"] if one["type"] == "Ready"), {})
    story.expect(
        status["verdict"] == "Passed", f"audit {status['verdict']}: {ready.get('message')}"
    )


class Interrupts:
    """Handles SIGINT and SIGTERM. The first signal ends the demo; no signal interrupts its clean
    stop, which is bounded in time."""

    def __init__(self) -> None:
        # True while everything is being stopped.
        self.stopping = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if not self.stopping:
            self.stopping = True
            raise KeyboardInterrupt
        console.print(f"  stopping already; what has not ended after {STOP_S} s is killed")


def stop(demo: LocalDemo) -> None:
    """Stop the demo as `LocalDemo.stop` does, and print the steps that it waits for."""
    if demo.is_running:
        console.print("  stopping Spark, the brokers and the controller")
    try:
        demo.stop()
    except GaveUp as error:
        console.print(f"[red]killed:[/] {error}", soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    keep: bool = parser.parse_args().keep
    interrupts = Interrupts()
    began = time.monotonic()
    story, demo = Story(), LocalDemo(DIRECTORY, keep=keep)
    finished = False
    try:
        run(demo, story, keep=keep)
        finished = True
    except GaveUp as error:
        console.print(f"[red]demo failed:[/] {error}", soft_wrap=True)
        console.print(f"  logs are in {demo.said.parent.relative_to(ROOT)}")
    except KeyboardInterrupt:
        console.print("interrupted")
        return 128 + signal.SIGINT
    finally:
        interrupts.stopping = True
        if not (finished and keep):
            stop(demo)
    took_s = time.monotonic() - began
    good = finished and not story.shortfalls
    console.print(f"[bold cyan]==>[/] {'done' if good else 'fell short'} in {took_s:.0f} s")
    return story.exit_code if finished else 1


if __name__ == "__main__":
    sys.exit(main())
