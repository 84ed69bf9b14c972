"""`make test`: every tier in turn, each timed, one summary, one closing line that counts.

Tiers run from the cheapest to the dearest.  A failing tier does not stop the others: one run tells
all that is wrong.  `python dev/tiers.py unit integration` runs just those.
"""

import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python"
NODE = ROOT / "dev" / "node.sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A set of tests that need the same things around them."""

    name: str
    about: str
    marker: str
    limit_s: int
    quiet_s: int = 120  # a test that takes longer has its stacks printed
    needs_node: bool = False


TIERS = (
    Tier(name="unit", about="pure tests, properties, chart, manifests",
         marker="not (simulation or integration or conformance or spark or e2e)", limit_s=900),
    Tier(name="simulation", about="whole clusters on virtual time: scenarios, mutants, chance",
         marker="simulation", limit_s=2400),
    Tier(name="integration", about="local clusters of real processes, kill -9",
         marker="integration", limit_s=1800),
    Tier(name="conformance", about="unmodified Kafka clients and tools",
         marker="conformance", limit_s=900),
    Tier(name="spark", about="Spark jobs on this machine", marker="spark", limit_s=900),
    Tier(name="e2e", about="a real Kubernetes: helm, pods, volumes, the demo",
         marker="e2e", limit_s=3600,
         quiet_s=900, needs_node=True),
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What one tier came to.  `seconds` includes bringing up what it needs."""

    name: str
    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    note: str = ""


def run(command: list[str], limit_s: int) -> int:
    """Run in a process group of its own, so that a tier that hangs takes its children along."""
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        return process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return 124


def count(report: Path, outcome: Outcome) -> None:
    """Read pytest's own report; a tier without one did not get as far as testing."""
    if not report.exists():
        outcome.failed += 1
        outcome.note = outcome.note or "no report: it did not get as far as testing"
        return
    for suite in ET.parse(report).getroot().iter("testsuite"):
        total = int(suite.get("tests", 0))
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        outcome.failed += bad
        outcome.skipped += skipped
        outcome.passed += total - bad - skipped


def run_tier(tier: Tier, directory: Path) -> Outcome:
    outcome = Outcome(name=tier.name)
    began = time.monotonic()
    print(f"\n=== {tier.name}: {tier.about}", flush=True)
    report = directory / f"{tier.name}.xml"
    if not tier.needs_node or node_is_up():
        code = run(
            [str(PYTHON), "-m", "pytest", "-q", "--no-header", "-m", tier.marker,
             f"--junitxml={report}", "--durations=5",
             "-o", f"faulthandler_timeout={tier.quiet_s}"],
            tier.limit_s,
        )  # fmt: skip
        if code == 124:
            outcome.note = f"stopped at its limit of {tier.limit_s} s"
        if code not in (0, 5) and report.exists():
            outcome.note = outcome.note or f"pytest ended with {code}"
        if code != 5:
            count(report, outcome)
        if code not in (0, 5) and outcome.failed == 0:
            outcome.failed = 1
    else:
        outcome.failed, outcome.note = 1, "the Kubernetes node did not come up"
    outcome.seconds = time.monotonic() - began
    return outcome


def node_is_up() -> bool:
    """Start the node and load the images; each step does nothing when done."""
    steps = ([str(NODE), "up"], [str(ROOT / "dev" / "images.sh")])
    return all(run(step, 1800) == 0 for step in steps)


def installed() -> Outcome:
    """Kubernetes, helm and promtool, built from their modules: minutes when cold, else nothing."""
    print("=== tools: Kubernetes, helm, promtool (minutes when cold)", flush=True)
    began = time.monotonic()
    good = run([str(NODE), "install"], 1800) == 0
    return Outcome(
        name="tools", passed=int(good), failed=int(not good), seconds=time.monotonic() - began
    )


def checked() -> Outcome:
    print("=== check: format, lint, types, contracts, tidy", flush=True)
    began = time.monotonic()
    good = run([str(ROOT / "dev" / "check.sh")], 600) == 0
    return Outcome(
        name="check", passed=int(good), failed=int(not good), seconds=time.monotonic() - began
    )


def node_was_running() -> bool:
    return NODE.exists() and subprocess.run(
        [str(NODE), "status"], cwd=ROOT, capture_output=True, check=False
    ).returncode == 0  # fmt: skip


def main(names: list[str]) -> int:
    known = {tier.name: tier for tier in TIERS}
    if unknown := [name for name in names if name not in known]:
        print(f"no such tier: {unknown}; there are {list(known)}")
        return 2
    chosen = [known[name] for name in names] or list(TIERS)
    running_before = node_was_running()
    outcomes = [] if names else [checked()]
    if not names or any(name in ("unit", "e2e") for name in names):
        outcomes.append(installed())
    with TemporaryDirectory() as directory:
        outcomes += [run_tier(tier, Path(directory)) for tier in chosen]
    if any(tier.needs_node for tier in chosen) and not running_before:
        run([str(NODE), "down"], 120)
    print("\ntier           time   passed  failed  skipped")
    for one in outcomes:
        print(
            f"{one.name:<12}{one.seconds:6.0f} s {one.passed:8} {one.failed:7} {one.skipped:8}"
            f"  {one.note}"
        )
    passed, failed, skipped = (
        sum(getattr(one, what) for one in outcomes) for what in ("passed", "failed", "skipped")
    )
    print(f"{sum(one.seconds for one in outcomes):18.0f} s in all\n")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
