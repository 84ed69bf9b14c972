"""`make test`: every tier, in lanes beside each other, one summary, one closing line that counts.

`make long` (`--long`) runs the tests with the mark `long`, which `make test` leaves out.

A real Kubernetes waits most of the time, and so do local clusters and those who are their clients:
each has lanes, whose tiers run in turn.  What only computes runs beside all of it at the lowest
priority, in two lanes, so that both processors have work until the end.  `dev/tier_lanes.py` says
what runs in which.

A failing tier does not stop the others: one run tells all that is wrong.  Each tier's output is in
`.cache/tests/`; what failed is printed.  `python -m dev.tiers unit integration` runs just those,
`e2e` all whose name begins with it; a single one's output is shown as it comes.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from dev import processor_time
from dev.tier_lanes import ON_RELEASE, PATIENT, STAGES, TIERS, Lane, Tier, named
from dev.tier_summary import Outcome, judge, progress, summary

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python"
NODE = ROOT / "dev" / "node.sh"
LOGS = ROOT / ".cache" / "tests"
TOLD_S = 15
FAILURE_LINES = 300
TIMED_OUT = 124
LONG_LIMIT_S = 3 * 3600
"""The limit of one tier of `make long`."""


def environment() -> dict[str, str]:
    """Ours, but that Python keeps what it compiled.  Many containers forbid it
    (PYTHONDONTWRITEBYTECODE); then each of a thousand processes compiles what it imports, half of
    what starting it costs."""
    return {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@dataclass(frozen=True, slots=True)
class Ended:
    """A child's exit code, and the seconds of a processor of it and of all that it waited for."""

    code: int
    processor_s: float


class Processes:
    """Children, each in a group of its own, so that one that hangs takes its children along."""

    def __init__(self) -> None:
        self._running: set[int] = set()
        # Set when no more may be started.
        self._ended = False

    def run(
        self,
        command: list[str],
        limit_s: float,
        output: TextIO | None = None,
        *,
        low_priority: bool = False,
    ) -> Ended:
        if self._ended:
            return Ended(130, 0.0)
        command = ["nice", "-n", "19", *command] if low_priority else command
        process = subprocess.Popen(
            command, cwd=ROOT, start_new_session=True, stdout=output, stderr=subprocess.STDOUT,
            env=environment(),
        )  # fmt: skip
        self._running.add(process.pid)
        if low_priority:
            # Sessions share the processor among each other, whatever the niceness within them.
            with suppress(OSError):
                Path(f"/proc/{process.pid}/autogroup").write_text("19")
        late = threading.Event()

        def end() -> None:
            late.set()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        limit = threading.Timer(limit_s, end)
        limit.start()
        try:
            _, status, used = os.wait4(process.pid, 0)
        finally:
            limit.cancel()
            self._running.discard(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        code = TIMED_OUT if late.is_set() else process.returncode
        return Ended(code, used.ru_utime + used.ru_stime)

    def end(self) -> None:
        self._ended = True
        for pid in list(self._running):
            os.killpg(pid, signal.SIGTERM)


class Run:
    """One call of this script: its children, what has ended, and what is under way."""

    def __init__(self, *, live: bool, long: bool = False) -> None:
        # True if the output of the only tier is shown as it comes.
        self.live = live
        # True if the long tests are run, False if all others.
        self.long = long
        self.processes = Processes()
        self.outcomes: list[Outcome] = []
        # Log of each tier that runs, and when it began (monotonic seconds).
        self.under_way: dict[str, tuple[Path, float]] = {}
        self.began = time.monotonic()
        # Set when helm and promtool are there, or cannot be built.
        self.tools = threading.Event()

    # --- what tiers need ------------------------------------------------------------------------

    def check(self) -> None:
        """Run the gates but for tidy, whose tests are in the unit tier."""
        gates = [str(ROOT / "dev" / "check.sh"), "--but-tidy"]
        self._step("check", "format, lint, types, contracts", gates)

    def node(self) -> bool:
        """Kubernetes with our images in it: minutes when cold, nothing when all is done."""
        return self._step(
            "kubernetes",
            "Kubernetes and our images, built and started",
            [str(NODE), "up", "images"],
            [str(ROOT / "dev" / "images.sh")],
        )

    def release(self) -> bool:
        """The chart, once for all tiers that use it."""
        command = [str(PYTHON), "-m", "tests.e2e.release"]
        return self._step("release", "the chart, installed", command)

    def earlier(self) -> None:
        """The release before: what tests that upgrade begin with."""
        command = [str(PYTHON), "-m", "tests.e2e.earlier"]
        self._step("earlier", "images of the release before", command)

    def install(self) -> None:
        """helm and promtool, built from their modules."""
        try:
            self._step("tools", "helm, promtool", [str(NODE), "install"])
        finally:
            self.tools.set()

    def _step(self, name: str, about: str, *commands: list[str]) -> bool:
        """Commands that must succeed, one after another; counted as one test."""
        outcome = Outcome(name=name)
        with self._output(name, about) as (output, began):
            used, good = 0.0, True
            for one in commands:
                ended = self.processes.run(one, 1800, output)
                used, good = used + ended.processor_s, ended.code == 0
                if not good:
                    break
            outcome.seconds, outcome.processor_s = time.monotonic() - began, round(used)
        outcome.passed, outcome.failed = int(good), int(not good)
        if not self.live:
            outcome.explain(LOGS / f"{name}.log")
        self._over(outcome)
        return good

    # --- tiers ----------------------------------------------------------------------------------

    def tiers(self, tiers: list[Tier]) -> None:
        """Run tiers in turn."""
        for tier in tiers:
            self._over(self._tier(tier))

    def tiers_on_release(self, of: dict[Lane, list[Tier]]) -> None:
        """Stage by stage; within a stage beside each other."""

        def run(lane: Lane) -> None:
            # This is the shorter lane of a stage without tests that build images.
            if lane is Lane.KILLS_B and of[lane] and of[Lane.RELEASE_ALONE]:
                self.earlier()
            self.tiers(of[lane])

        for stage in STAGES:
            lanes = [threading.Thread(target=run, args=(lane,), daemon=True) for lane in stage]
            for lane in lanes:
                lane.start()
            for lane in lanes:
                lane.join()

    def _tier(self, tier: Tier) -> Outcome:
        if tier.needs_tools:
            self.tools.wait()
        outcome, report = Outcome(name=tier.name), LOGS / f"{tier.name}.xml"
        limit_s = LONG_LIMIT_S if self.long else tier.limit_s
        report.unlink(missing_ok=True)
        with self._output(tier.name, tier.about) as (output, began):
            patient = tier.lane in PATIENT
            # These lanes get only the processor time that others leave, so their limit is long.
            patience = ["-o", "timeout=3600"] if patient else []
            kept = ["env", "KEEP_RELEASE=1"] if tier.lane in ON_RELEASE else []
            ended = self.processes.run(
                [*kept, str(PYTHON), "-m", "pytest", "-q" if self.live else "-v", "--no-header",
                 "-m", tier.selection(long=self.long), *tier.paths, f"--junitxml={report}",
                 *(f"--ignore={path}" for path in tier.ignored),
                 "-o", f"stacks_after_s={tier.quiet_s}", *patience],
                limit_s, output, low_priority=patient and not self.live,
            )  # fmt: skip
            judge(outcome, ended.code, report, limit_s)
            outcome.processor_s = round(ended.processor_s)
            if not self.live:
                outcome.explain(LOGS / f"{tier.name}.log")
            outcome.seconds = time.monotonic() - began
        return outcome

    def _over(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.say(f"{outcome.name}: {outcome.passed} passed, {outcome.failed} failed {outcome.note}")
        log = LOGS / f"{outcome.name}.log"
        if outcome.failed and not self.live and log.exists():
            text = log.read_text(errors="replace")
            begin = max(text.find("= FAILURES ="), 0) or max(text.find("= ERRORS ="), 0)
            lines = text[begin:].splitlines()
            print("\n".join(lines[-FAILURE_LINES:]), flush=True)
            print(f"(all of it: {log.relative_to(ROOT)})", flush=True)

    # --- what is shown --------------------------------------------------------------------------

    @contextmanager
    def _output(self, name: str, about: str) -> Iterator[tuple[TextIO | None, float]]:
        """Yield the children's output, None: the terminal; and the time when it began."""
        began = time.monotonic()
        self.say(f"{name}: {about}")
        if self.live:
            yield None, began
            return
        path = LOGS / f"{name}.log"
        with path.open("w") as output:
            self.under_way[name] = (path, began)
            try:
                yield output, began
            finally:
                del self.under_way[name]

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:5.0f} s] {text}", flush=True)

    def tell(self) -> None:
        """Print the progress of all tiers."""
        now = time.monotonic()
        told = [
            f"{name} {now - began:.0f} s{progress(path)}"
            for name, (path, began) in list(self.under_way.items())
        ]
        if told:
            self.say("  under way: " + "; ".join(told))


def node_was_running() -> bool:
    return NODE.exists() and subprocess.run(
        [str(NODE), "status"], cwd=ROOT, capture_output=True, check=False
    ).returncode == 0  # fmt: skip


def beside(run: Run, tiers: list[Tier], *, everything: bool) -> None:
    """The lanes, until all are done."""
    of = {lane: [tier for tier in tiers if tier.lane is lane] for lane in Lane}

    def on_the_node() -> None:
        on_release = [of[lane] for lane in ON_RELEASE if of[lane]]
        up = not (on_release or of[Lane.BARE_NODE]) or run.node()
        # promtool is compiled while the node is in use already.
        tools = threading.Thread(target=run.install, daemon=True)
        if any(tier.needs_tools for tier in tiers):
            tools.start()
        if up:
            bare = threading.Thread(target=run.tiers, args=(of[Lane.BARE_NODE],), daemon=True)
            bare.start()
            if on_release and run.release():
                run.tiers_on_release(of)
            bare.join()

    def computing() -> None:
        if everything:
            run.check()
        run.tiers(of[Lane.COMPUTING])

    work = (
        on_the_node,
        lambda: run.tiers(of[Lane.PROCESSES]),
        lambda: run.tiers(of[Lane.CLIENTS]),
        lambda: run.tiers(of[Lane.SIMULATION]),
        computing,
    )
    lanes = [threading.Thread(target=one, daemon=True) for one in work]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        while lane.is_alive():
            lane.join(TOLD_S)
            run.tell()


def main(arguments: list[str]) -> int:
    long, names = "--long" in arguments, [name for name in arguments if name != "--long"]
    if unknown := [name for name in names if not named([name])]:
        print(f"no such tier: {unknown}; there are {[tier.name for tier in TIERS]}")
        return 2
    chosen = named(names) or list(TIERS)
    if long:
        chosen = [tier for tier in chosen if tier.has_long_tests()]
    running_before = node_was_running()
    LOGS.mkdir(parents=True, exist_ok=True)
    run = Run(live=len(chosen) == 1, long=long)
    before = processor_time.read()
    pods = processor_time.PodsSeen()
    try:
        with pods:
            beside(run, chosen, everything=not names and not long)
    finally:
        run.processes.end()
        after = processor_time.read()
        on_it = any(tier.lane in (*ON_RELEASE, Lane.BARE_NODE) for tier in chosen)
        if on_it and not running_before:
            subprocess.run([str(NODE), "down"], cwd=ROOT, timeout=120, check=False)
    known_s = sum(outcome.processor_s or 0 for outcome in run.outcomes)
    where = processor_time.told(before, after, known_s, pods.by_containers())
    return summary(run.outcomes, time.monotonic() - run.began, where)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
