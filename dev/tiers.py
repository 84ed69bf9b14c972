"""`make test` and `make long`: every tier, in lanes beside each other, then one summary.

`make long` (`--long`) runs the tests with the mark `long`, which `make test` leaves out. Tests on
Kubernetes wait most of the time, and so do tests of local clusters and their clients, so each kind
has lanes of its own. Tests that only compute run at the same time, at the lowest priority.
`dev/tier_lanes.py` assigns tiers to lanes.

A failing tier does not stop the others. Each tier's output is in `.cache/tests/`; failures are
printed. `python -m dev.tiers unit integration` runs just those, `e2e` all tiers with names that
begin with it; the output of a single one is shown as it comes.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TextIO

import psutil
from dev.processor_time import Busiest, Busy
from dev.tier_lanes import PATIENT, ROOT, TIERS, Lane, Tier, named
from dev.tier_summary import Outcome, judge, progress, summary

PYTHON = str(ROOT / ".venv" / "bin" / "python")
NODE = str(ROOT / "dev" / "node.sh")
LOGS = ROOT / ".cache" / "tests"
TOLD_S = 15
FAILURE_LINES = 300
TIMED_OUT = 124
STEP_LIMIT_S = 1800
LONG_LIMIT_S = 3 * 3600
"""Bound on the seconds of one tier of `make long`."""
PATIENCE_S = 3600
"""Bound on the seconds of one test that gets only the processor time that others leave."""


def environment() -> dict[str, str]:
    """Return this process's environment variables, changed so that Python keeps compiled files.
    Many containers forbid that (PYTHONDONTWRITEBYTECODE); then each of a thousand processes
    compiles what it imports, which is half the cost of starting it."""
    return {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def kill_tree(pid: int) -> None:
    """Kill a process and its descendants, those in sessions of their own too: they would go on
    taking processor time from the tests that follow."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()


class Run:
    """One run of this script: its child processes, each in a process group of its own, so that a
    child that hangs can be killed with its own children; and the tiers that have ended or are
    running."""

    def __init__(self, *, live: bool, long: bool = False) -> None:
        # True if the output of the only tier is shown as it comes.
        self.live = live
        # True if the long tests are run, False if all others.
        self.long = long
        self.outcomes: list[Outcome] = []
        # Log of each tier that runs, and when it began (monotonic seconds).
        self.under_way: dict[str, tuple[Path, float]] = {}
        self.began = time.monotonic()
        # Set when helm is there, or cannot be built.
        self.helm = threading.Event()
        self._children: set[int] = set()
        self._ended = False
        self._busiest = Busiest()

    def child(
        self, command: list[str], limit_s: float, output: TextIO | None, *, patient: bool = False
    ) -> tuple[int, float]:
        """Run a child process. Return its exit code, and the seconds of processor time that it and
        its descendants used."""
        if self._ended:
            return 130, 0.0
        process = subprocess.Popen(
            ["nice", "-n", "19", *command] if patient else command, cwd=ROOT,
            start_new_session=True, stdout=output, stderr=subprocess.STDOUT, env=environment(),
        )  # fmt: skip
        self._children.add(process.pid)
        if patient:
            # Sessions share the processor among each other, whatever the niceness within them.
            with suppress(OSError):
                Path(f"/proc/{process.pid}/autogroup").write_text("19")
        late = threading.Event()

        def kill() -> None:
            late.set()
            kill_tree(process.pid)

        limit = threading.Timer(limit_s, kill)
        limit.start()
        try:
            _, status, used = os.wait4(process.pid, 0)
        finally:
            limit.cancel()
            self._children.discard(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        code = TIMED_OUT if late.is_set() else process.returncode
        return code, used.ru_utime + used.ru_stime

    def end(self) -> None:
        """Kill all child processes, and start no more."""
        self._ended = True
        for pid in list(self._children):
            os.killpg(pid, signal.SIGTERM)

    def step(self, name: str, about: str, *commands: list[str]) -> bool:
        """Run commands that must succeed, one after another. Together they count as one test in the
        summary. Return True if all succeeded."""
        outcome = Outcome(name=name)
        with self._output(outcome, about) as output:
            good = True
            for command in commands:
                code, used = self.child(command, STEP_LIMIT_S, output)
                outcome.processor_s += used
                good = good and code == 0
                if not good:
                    break
            outcome.passed, outcome.failed = int(good), int(not good)
        return good

    def tiers(self, tiers: list[Tier]) -> None:
        """Run tiers one after another."""
        for tier in tiers:
            self.tier(tier)

    def wait_for_helm(self, tier: Tier) -> None:
        """Wait until helm is there if the tier's tests call it."""
        if tier.lane is Lane.COMPUTING:
            self.helm.wait()

    def tier(self, tier: Tier) -> None:
        outcome, report = Outcome(name=tier.name), LOGS / f"{tier.name}.xml"
        self.wait_for_helm(tier)
        report.unlink(missing_ok=True)
        limit_s, patient = LONG_LIMIT_S if self.long else tier.limit_s, tier.lane in PATIENT
        command = [PYTHON, "-m", "pytest", "-q" if self.live else "-v", "--no-header"]
        command += ["-m", tier.selection(long=self.long), f"--junitxml={report}", *tier.paths]
        command += [f"--ignore={path}" for path in tier.ignored]
        if tier.workers:
            command += ["-n", str(tier.workers), "--dist", "loadfile"]
        if patient:
            command += ["-o", f"timeout={PATIENCE_S}"]
        if tier.lane is Lane.RELEASE:
            command = ["env", "KEEP_RELEASE=1", *command]
        with self._output(outcome, tier.about) as output:
            lowered = patient and not self.live
            code, outcome.processor_s = self.child(command, limit_s, output, patient=lowered)
            judge(outcome, code, report, limit_s)

    @contextmanager
    def _output(self, outcome: Outcome, about: str) -> Iterator[TextIO | None]:
        """Yield the file for the child processes' output, None for the terminal. Afterwards count
        and print the outcome."""
        began, log = time.monotonic(), LOGS / f"{outcome.name}.log"
        self.say(f"{outcome.name}: {about}")
        with nullcontext() if self.live else log.open("w") as output:
            self.under_way[outcome.name] = (log, began)
            yield output
        del self.under_way[outcome.name]
        outcome.seconds = time.monotonic() - began
        self.outcomes.append(outcome)
        found = f"{outcome.passed} passed, {outcome.failed} failed {outcome.note}"
        self.say(f"{outcome.name}: {found}")
        if outcome.failed and not self.live:
            outcome.explain(log)
            text = log.read_text(errors="replace")
            begin = max(text.find("= FAILURES ="), 0) or max(text.find("= ERRORS ="), 0)
            print("\n".join(text[begin:].splitlines()[-FAILURE_LINES:]), flush=True)
            print(f"(all of it: {os.path.relpath(log, ROOT)})", flush=True)

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:5.0f} s] {text}", flush=True)

    def tell(self) -> None:
        """Print the progress of all tiers."""
        now = time.monotonic()
        told = [
            f"{name} {now - began:.0f} s{progress(log)}"
            for name, (log, began) in list(self.under_way.items())
        ]
        busiest = self._busiest.told()
        if told and not self.live:
            self.say("  under way: " + "; ".join(told))
            if busiest:
                self.say("  busiest: " + "; ".join(busiest))


def beside(run: Run, tiers: list[Tier], *, everything: bool) -> None:
    """Run all lanes at the same time, until the last has ended."""
    of = {lane: [tier for tier in tiers if tier.lane is lane] for lane in Lane}

    def computing() -> None:
        if everything:
            # The tests of the tidy gate are in the unit tier.
            gates = [str(ROOT / "dev" / "check.sh"), "--but-tidy"]
            run.step("check", "format, lint, types, contracts", gates)
        run.tiers(of[Lane.COMPUTING])

    in_turn = (Lane.PROCESSES, Lane.CLIENTS, Lane.SIMULATION)
    lanes = [threading.Thread(target=run.tiers, args=(of[lane],), daemon=True) for lane in in_turn]
    lanes.append(threading.Thread(target=on_kubernetes, args=(run, of), daemon=True))
    lanes.append(threading.Thread(target=computing, daemon=True))
    for lane in lanes:
        lane.start()
    for lane in lanes:
        while lane.is_alive():
            lane.join(TOLD_S)
            run.tell()


def on_kubernetes(run: Run, of: dict[Lane, list[Tier]]) -> None:
    """Start Kubernetes, with which helm comes, and install the release if some tiers need them.
    Build helm alone if no other tier needs more."""
    up, images = [NODE, "up", "images"], [str(ROOT / "dev" / "images.sh")]
    on_node = bool(of[Lane.RELEASE] or of[Lane.BARE_NODE])
    good = not on_node or run.step("kubernetes", "Kubernetes with our images", up, images)
    try:
        if of[Lane.COMPUTING] and not (on_node and good):
            run.step("helm", "helm", [NODE, "install"])
    finally:
        run.helm.set()
    if good:
        bare = threading.Thread(target=run.tiers, args=(of[Lane.BARE_NODE],), daemon=True)
        bare.start()
        chart = [PYTHON, "-m", "tests.e2e.release"]
        if of[Lane.RELEASE] and run.step("release", "the chart, installed", chart):
            run.tiers(of[Lane.RELEASE])
        bare.join()


def node_is_running() -> bool:
    return subprocess.run([NODE, "status"], capture_output=True, check=False).returncode == 0


def main(arguments: list[str]) -> int:
    long, names = "--long" in arguments, [name for name in arguments if name != "--long"]
    if unknown := [name for name in names if not named([name])]:
        print(f"no such tier: {unknown}; there are {[tier.name for tier in TIERS]}")
        return 2
    chosen = named(names) or list(TIERS)
    if long:
        chosen = [tier for tier in chosen if tier.has_long_tests()]
    on_node = any(tier.lane in (Lane.RELEASE, Lane.BARE_NODE) for tier in chosen)
    running_before = node_is_running()
    LOGS.mkdir(parents=True, exist_ok=True)
    run, busy = Run(live=len(chosen) == 1, long=long), Busy()
    try:
        beside(run, chosen, everything=not names and not long)
    finally:
        run.end()
        if on_node and not running_before:
            subprocess.run([NODE, "down"], timeout=120, check=False)
    return summary(run.outcomes, time.monotonic() - run.began, busy.told())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
