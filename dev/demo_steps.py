"""The steps that both demos share: a broker killed in mid-write, and the verdict.

Waits until Spark writes, kills broker 0, watches leaders and in-sync replicas, waits for the
verdict, prints the table and judges. Called by `demo` and `demo_kubernetes`, which differ by where
the cluster runs and how its broker is killed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from dev.kubectl import GaveUp, wait_for
from rich.console import Console
from rich.table import Table

T = TypeVar("T")

CLUSTER = "main"
TOPIC = "orders"
VERIFICATION = "orders-check"
VICTIM = 0
TABLE_TITLE = f"topic {TOPIC}: broker {VICTIM} killed in mid-write"
STALL_LIMIT_MS = 2_000
ISR_LIMIT_S = 30
WRITING_ACKED = 1_000
WRITING_S = 300
"""Seconds to wait until Spark writes. They suffice on a busy machine; starting the JVM alone takes
ten seconds of processor time."""
SILENCE_S = 5.0
"""Seconds after which a wait prints its progress again."""

console = Console(highlight=False, width=110 if not sys.stdout.isatty() else None)


@dataclass(frozen=True, slots=True)
class View:
    """Leaders and in-sync replicas of every partition; `at` in seconds since 1970."""

    at: float
    leaders: dict[int, int | None]
    isr: dict[int, list[int]]
    replicas: dict[int, list[int]]

    @property
    def full(self) -> bool:
        return all(len(self.isr[p]) == len(self.replicas[p]) for p in self.replicas)

    @property
    def led_by_survivors(self) -> bool:
        return all(leader not in (None, VICTIM) for leader in self.leaders.values())


class DemoCluster(Protocol):
    """A running cluster of a demo."""

    def view(self) -> View | None:
        """Return leaders and ISRs of all partitions; None if no broker answers."""

    def verification(self) -> dict[str, Any]:
        """Return the Verification's status; {} while it has none."""

    def kill_broker(self) -> None:
        """Send SIGKILL to the process of the broker `VICTIM`."""

    def restarted_at(self, killed_at: float) -> float | None:
        """Return the time when the broker's process was restarted; None before that."""

    def report(self) -> dict[str, str]:
        """The files of Spark's report, by name."""


@dataclass(slots=True)
class Story:
    """The events of a demo, for the summary at the end."""

    before: View | None = None
    during: View | None = None
    after: View | None = None
    isr_full_s: float | None = None
    shortfalls: list[str] = field(default_factory=list)
    # Those that a machine with too much else to do has by itself: what took longer than it may.
    delays: list[str] = field(default_factory=list)

    def expect(self, good: bool, sentence: str) -> None:
        console.print(f"  {'[green]ok[/]  ' if good else '[red]SHORT[/]'} {sentence}")
        if not good:
            self.shortfalls.append(sentence)

    def expect_in_time(self, good: bool, sentence: str) -> None:
        self.expect(good, sentence)
        if not good:
            self.delays.append(sentence)

    @property
    def exit_code(self) -> int:
        """Return the exit code: 0 if all checks passed, 1 if one failed, 2 if all passed but
        something took longer than allowed."""
        if self.shortfalls == self.delays:
            return 2 if self.delays else 0
        return 1


class Steps:
    """Prints the step that is being done, its number, and how long it usually takes."""

    def __init__(self, total: int | None = None) -> None:
        """Begin with the first step. `total`: the number of steps; None if neither their number nor
        their times are known."""
        self._total = total
        self._done = 0

    def say(self, text: str, usually_s: int | None = None) -> None:
        """Print the next step."""
        self._done += 1
        count = f"{self._done}/{self._total} " if self._total else ""
        usually = f" (usually {usually_s} s)" if usually_s and self._total else ""
        console.print(f"[bold cyan]==>[/] {count}{text}{usually}", soft_wrap=True)


def wait(what: str, probe: Callable[[], T | None], timeout_s: float, every_s: float = 0.5) -> T:
    """Wait like `wait_for`, and print the progress every `SILENCE_S` seconds."""
    began = said = time.monotonic()

    def probe_and_say() -> T | None:
        nonlocal said
        now = time.monotonic()
        if now - said >= SILENCE_S:
            said = now
            console.print(f"  {now - began:.0f} s: still waiting for {what}")
        return probe()

    return wait_for(what, probe_and_say, timeout_s, every_s)


def kill_and_judge(cluster: DemoCluster, story: Story, steps: Steps) -> None:
    """Run the steps from an applied Verification to the verdict. Raises GaveUp."""
    story.before = wait("the partitions' leaders", cluster.view, 60)
    wait_until_writing(cluster, steps)
    kill_and_watch(cluster, story, steps)
    status = wait_for_verdict(cluster, steps)
    stalls = stalls_ms(cluster.report())
    show(story, stalls)
    judge(story, status, stalls, steps)


def wait_until_writing(cluster: DemoCluster, steps: Steps) -> None:
    steps.say("waiting for Spark to write", 15)

    def writing() -> bool | None:
        status = cluster.verification()
        if status.get("verdict") or status.get("phase") in ("Completed", "Failed"):
            raise GaveUp(f"the verification ended before the kill: {json.dumps(status)[:600]}")
        if why := disabled(status):
            raise GaveUp(why)
        return status.get("counts", {}).get("acked", 0) > WRITING_ACKED or None

    wait("Spark's first acknowledged records", writing, WRITING_S)


def disabled(status: dict[str, Any]) -> str:
    """Return the reason why Verifications cannot run here; "" if they can."""
    shown = status.get("conditions") or ()
    return next((str(c["message"]) for c in shown if c["reason"] == "VerificationDisabled"), "")


def kill_and_watch(cluster: DemoCluster, story: Story, steps: Steps) -> None:
    steps.say(f"SIGKILL to broker {VICTIM}", 5)
    killed_at = time.time()
    cluster.kill_broker()

    def moved() -> View | None:
        now = cluster.view()
        return now if now and now.led_by_survivors else None

    story.during = wait("leaders to move", moved, 30, every_s=0.1)
    console.print(
        f"  every partition led by a survivor {story.during.at - killed_at:.1f} s after the kill"
    )
    back_at = wait(
        "the broker's process to start again", lambda: cluster.restarted_at(killed_at), 120, 0.1
    )
    away_s = max(0.0, back_at - killed_at)
    console.print(f"  broker {VICTIM} is back after {away_s:.0f} s, on its volume")

    def whole() -> View | None:
        now = cluster.view()
        return now if now and now.full else None

    story.after = wait("every ISR to be full", whole, 90, every_s=0.3)
    story.isr_full_s = max(0.0, story.after.at - back_at)
    console.print(f"  every ISR is full {story.isr_full_s:.1f} s later")


def wait_for_verdict(cluster: DemoCluster, steps: Steps) -> dict[str, Any]:
    """Wait for the verdict. Return the Verification's status, which contains it."""
    steps.say("waiting for the verdict", 45)
    shown = ""

    def verdict() -> dict[str, Any] | None:
        nonlocal shown
        status = cluster.verification()
        counts = status.get("counts", {})
        acked, read = counts.get("acked", 0), counts.get("read", 0)
        line = f"{status.get('phase', '')}: acked {acked:,}, read {read:,}"
        if line != shown:
            shown = line
            console.print(f"  {line}")
        return status if status.get("verdict") else None

    return wait("the verdict", verdict, 600, every_s=3)


def stalls_ms(report: dict[str, str]) -> dict[int, float]:
    """Return for how many milliseconds writes to each partition stalled, from Spark's report."""
    timing = json.loads(report.get("verdict.json", "{}")).get("timing", {})
    found = timing.get("stallMillisecondsByPartition", {})
    return {int(partition): float(value) for partition, value in found.items()}


def show(story: Story, stalls: dict[int, float]) -> None:
    before, during, after = story.before, story.during, story.after
    assert before is not None
    assert during is not None
    assert after is not None
    table = Table(title=TABLE_TITLE, title_justify="left")
    for column in ("partition", "replicas", "leader before", "leader during", "ISR during",
                   "leader after", "ISR after", "writes stalled"):  # fmt: skip
        table.add_column(column, justify="right" if column == "partition" else "left")
    for p in sorted(before.replicas):
        table.add_row(
            str(p),
            ",".join(map(str, before.replicas[p])),
            str(before.leaders[p]),
            str(during.leaders[p]),
            ",".join(map(str, during.isr[p])),
            str(after.leaders[p]),
            ",".join(map(str, after.isr[p])),
            f"{stalls[p]:.0f} ms" if p in stalls else "unknown",
        )
    console.print(table)


def judge(story: Story, status: dict[str, Any], stalls: dict[int, float], steps: Steps) -> None:
    counts = status.get("counts", {})
    steps.say("verdict")
    console.print("  " + ", ".join(f"{name} {value:,}" for name, value in counts.items()))
    story.expect(status.get("verdict") == "Passed", f"verdict {status.get('verdict')}")
    for name, about in (("lost", "acked records lost"), ("duplicated", "duplicated"),
                        ("outOfOrder", "out of order")):  # fmt: skip
        story.expect(counts.get(name) == 0, f"{counts.get(name)} {about}")
    assert story.before is not None
    assert story.isr_full_s is not None
    worst = max(stalls.values(), default=float("inf"))
    complete = set(stalls) == set(story.before.replicas)
    if not complete:
        story.expect(False, f"stalls of {len(stalls)} partitions are known")
    story.expect_in_time(
        worst <= STALL_LIMIT_MS,
        f"worst stall of writes {worst:.0f} ms over {len(stalls)} partitions"
        f" (limit {STALL_LIMIT_MS} ms)",
    )
    story.expect_in_time(
        story.isr_full_s <= ISR_LIMIT_S,
        f"every ISR full {story.isr_full_s:.1f} s after the broker's return"
        f" (limit {ISR_LIMIT_S} s)",
    )
