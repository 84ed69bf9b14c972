"""`make demo`: a cluster on a real Kubernetes, a broker killed in mid-write, and the verdict.

Brings up the local node (or, with USE_CURRENT_CONTEXT=1, uses the current kubectl context), builds
the images, installs the chart, applies `examples/`, kills broker 0 with SIGKILL while Spark writes,
and prints what happened.  Ends non-zero if anything fell short; leaves the cluster up.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import yaml
from kubectl import (
    NODE,
    ROOT,
    Cluster,
    CommandFailed,
    GaveUp,
    condition,
    is_true,
    local_environment,
    wait_for,
)
from rich.console import Console
from rich.table import Table

OPERATOR_NAMESPACE = "plimsoll-system"
NAMESPACE = "kafka"
CLUSTER = "main"
TOPIC = "orders"
VERIFICATION = "orders-check"
VICTIM = 0
STALL_LIMIT_MS = 2_000
ISR_LIMIT_S = 30

console = Console(highlight=False, width=110 if not sys.stdout.isatty() else None)


@dataclass(frozen=True, slots=True)
class View:
    """Leaders and in-sync replicas of every partition, as the controller has them committed."""

    at: float
    leaders: dict[int, int | None]
    isr: dict[int, list[int]]
    replicas: dict[int, list[int]]

    @property
    def full(self) -> bool:
        return all(len(self.isr[p]) == len(self.replicas[p]) for p in self.replicas)


@dataclass(slots=True)
class Story:
    """What happened, for the summary at the end."""

    before: View | None = None
    during: View | None = None
    after: View | None = None
    isr_full_s: float | None = None
    shortfalls: list[str] = field(default_factory=list)

    def expect(self, good: bool, sentence: str) -> None:
        console.print(f"  {'[green]ok[/]  ' if good else '[red]SHORT[/]'} {sentence}")
        if not good:
            self.shortfalls.append(sentence)


def say(text: str) -> None:
    console.print(f"[bold cyan]==>[/] {text}")


def bring_up() -> Cluster:
    """A Kubernetes to use, with our images in it."""
    if os.environ.get("USE_CURRENT_CONTEXT") == "1":
        cluster = Cluster(dict(os.environ))
        context = cluster.kubectl("config", "current-context").strip()
        say(f"using the current kubectl context, {context}")
        return cluster
    for verb, about in (("install", "the node's programs (minutes when cold)"), ("up", "the node")):
        say(f"{verb}: {about}")
        subprocess.run([str(NODE), verb], check=True, stdout=subprocess.DEVNULL)
    say("images: operator, broker, spark")
    subprocess.run([str(ROOT / "dev" / "images.sh")], check=True)
    return Cluster(local_environment())


def install_chart(cluster: Cluster) -> None:
    say("helm: the operator")
    extra = os.environ.get("DEMO_HELM_ARGS", "").split()
    values = ROOT / "dev" / "values-local.yaml"
    if not extra and values.exists():
        extra = ["--values", str(values)]
    cluster.run(
        "helm", "upgrade", "--install", "plimsoll", str(ROOT / "helm" / "plimsoll"),
        "--namespace", OPERATOR_NAMESPACE, "--create-namespace",
        "--set", "verification.enabled=true", *extra, "--wait", "--timeout", "180s",
        timeout_s=240,
    )  # fmt: skip


def apply_examples(cluster: Cluster) -> None:
    say("kubectl apply -f examples/, with maintenance.allowDrills")
    with_previous = cluster.get("namespace", NAMESPACE, NAMESPACE)
    if with_previous:
        cluster.kubectl("delete", "verification", VERIFICATION, "-n", NAMESPACE,
                        "--ignore-not-found", "--wait=true", timeout_s=90)  # fmt: skip
        wait_for("the last run's Spark pod to go", lambda: spark_pods(cluster) == [] or None, 90)
    else:
        cluster.kubectl("create", "namespace", NAMESPACE)
    # Brokers that a process beside them may kill: that is this demo's wish, not a user's.
    example = yaml.safe_load((ROOT / "examples" / "logcluster.yaml").read_text())
    example["spec"]["maintenance"] = {"allowDrills": True}
    cluster.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(example))
    for name in ("topic-orders.yaml", "verification.yaml"):
        cluster.kubectl("apply", "-n", NAMESPACE, "-f", str(ROOT / "examples" / name))
    for kind, name in (("logcluster", CLUSTER), ("topic", TOPIC)):
        wait_for(
            f"{kind}/{name} to be Ready",
            lambda kind=kind, name=name: (
                is_true(cluster.get(kind, name, NAMESPACE), "Ready") or None
            ),
            180,
        )
        console.print(f"  {kind}/{name} is Ready")
    # Another image than last time rolls the brokers that are there.
    wait_for("every broker to run this image", lambda: has_settled(cluster) or None, 300)


def has_settled(cluster: Cluster) -> bool:
    found = condition(cluster.get("logcluster", CLUSTER, NAMESPACE), "Reconciling")
    return found is not None and found["status"] == "False"


def spark_pods(cluster: Cluster) -> list[dict[str, Any]]:
    return cluster.items("pods", NAMESPACE, f"plimsoll.dev/verification={VERIFICATION}")


def view(cluster: Cluster) -> View | None:
    """Ask the active operator; the standby knows nothing and says so."""
    for pod in cluster.items("pods", OPERATOR_NAMESPACE, "app.kubernetes.io/name=plimsoll"):
        name = pod["metadata"]["name"]
        path = (
            f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{name}:9100/proxy"
            f"/v1/clusters/{NAMESPACE}/{CLUSTER}/topics/{TOPIC}"
        )
        try:
            found = json.loads(cluster.raw(path))["partitions"]
        except (CommandFailed, ValueError, KeyError):
            continue
        return View(
            at=time.time(),
            leaders={one["partition"]: one["leader"] for one in found},
            isr={one["partition"]: one["isr"] for one in found},
            replicas={one["partition"]: one["replicas"] for one in found},
        )
    return None


def verification(cluster: Cluster) -> dict[str, Any]:
    found = cluster.get("verification", VERIFICATION, NAMESPACE)
    return (found or {}).get("status") or {}


def wait_until_writing(cluster: Cluster) -> None:
    say("waiting for Spark to write")

    def writing() -> bool | None:
        status = verification(cluster)
        if status.get("verdict") or status.get("phase") in ("Completed", "Failed"):
            raise GaveUp(f"the verification ended before the kill: {json.dumps(status)[:600]}")
        return status.get("counts", {}).get("acked", 0) > 1000 or None

    wait_for("Spark's first acknowledged records", writing, 180)


def kill_broker(cluster: Cluster) -> None:
    """SIGKILL to the broker's process, from inside its pod (its processes share one namespace)."""
    code = (
        "import os,signal,pathlib\n"
        "for d in pathlib.Path('/proc').iterdir():\n"
        "  if d.name.isdigit() and b'plimsoll_broker' in (d/'cmdline').read_bytes() "
        "and int(d.name)!=os.getpid() and b'-c' not in (d/'cmdline').read_bytes().split(b'\\0'):\n"
        "    os.kill(int(d.name), signal.SIGKILL)\n"
    )
    pod = f"{CLUSTER}-broker-{VICTIM}-0"
    try:
        cluster.kubectl("exec", "-n", NAMESPACE, pod, "-c", "broker", "--", "python3", "-c", code)
    except CommandFailed as error:
        # Who runs in a container goes with it, and may go before it has said that it is done.
        if f"exit code {128 + signal.SIGKILL}" not in str(error):
            raise


def restarted_at(cluster: Cluster, killed_at: float) -> float | None:
    """When the kubelet started the broker's container again."""
    pod = cluster.get("pod", f"{CLUSTER}-broker-{VICTIM}-0", NAMESPACE)
    for one in ((pod or {}).get("status") or {}).get("containerStatuses", []):
        started = one.get("state", {}).get("running", {}).get("startedAt")
        if started:
            at = datetime.fromisoformat(started).timestamp()
            if at >= int(killed_at):
                return at
    return None


def kill_and_watch(cluster: Cluster, story: Story) -> None:
    say(f"SIGKILL to broker {VICTIM}")
    killed_at = time.time()
    kill_broker(cluster)

    def moved() -> View | None:
        now = view(cluster)
        gone = now and all(leader not in (None, VICTIM) for leader in now.leaders.values())
        return now if gone else None

    story.during = wait_for("leaders to move", moved, 30, every_s=0.1)
    console.print(
        f"  every partition led by a survivor {story.during.at - killed_at:.1f} s after the kill"
    )
    back_at = wait_for(
        "the broker's container to start again", lambda: restarted_at(cluster, killed_at), 120
    )
    away_s = max(0.0, back_at - killed_at)
    console.print(f"  broker {VICTIM} is back after {away_s:.0f} s, on its volume")

    def whole() -> View | None:
        now = view(cluster)
        return now if now and now.full else None

    story.after = wait_for("every ISR to be full", whole, 90, every_s=0.3)
    story.isr_full_s = max(0.0, story.after.at - back_at)


def wait_for_verdict(cluster: Cluster) -> dict[str, Any]:
    say("waiting for the verdict")
    shown = ""

    def verdict() -> dict[str, Any] | None:
        nonlocal shown
        status = verification(cluster)
        counts = status.get("counts", {})
        acked, read = counts.get("acked", 0), counts.get("read", 0)
        line = f"{status.get('phase', '')}: acked {acked:,}, read {read:,}"
        if line != shown:
            shown = line
            console.print(f"  {line}")
        return status if status.get("verdict") else None

    return wait_for("the verdict", verdict, 600, every_s=3)


def stalls_ms(cluster: Cluster) -> dict[int, float]:
    """How long writes to each partition stalled, from the job's own report."""
    report = cluster.get("configmap", f"{VERIFICATION}-report", NAMESPACE) or {}
    timing = json.loads(report.get("data", {}).get("verdict.json", "{}")).get("timing", {})
    found = timing.get("stallMillisecondsByPartition", {})
    return {int(partition): float(value) for partition, value in found.items()}


def show(story: Story, stalls: dict[int, float]) -> None:
    before, during, after = story.before, story.during, story.after
    assert before is not None
    assert during is not None
    assert after is not None
    table = Table(title=f"topic {TOPIC}: broker {VICTIM} killed in mid-write", title_justify="left")
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


def judge(story: Story, status: dict[str, Any], stalls: dict[int, float]) -> None:
    counts = status.get("counts", {})
    say("verdict")
    console.print("  " + ", ".join(f"{name} {value:,}" for name, value in counts.items()))
    story.expect(status.get("verdict") == "Passed", f"verdict {status.get('verdict')}")
    for name, about in (("lost", "acked records lost"), ("duplicated", "duplicated"),
                        ("outOfOrder", "out of order")):  # fmt: skip
        story.expect(counts.get(name) == 0, f"{counts.get(name)} {about}")
    assert story.before is not None
    assert story.isr_full_s is not None
    worst = max(stalls.values(), default=float("inf"))
    complete = set(stalls) == set(story.before.replicas)
    story.expect(
        complete and worst <= STALL_LIMIT_MS,
        f"worst stall of writes {worst:.0f} ms over {len(stalls)} partitions"
        f" (limit {STALL_LIMIT_MS} ms)",
    )
    story.expect(
        story.isr_full_s <= ISR_LIMIT_S,
        f"every ISR full {story.isr_full_s:.1f} s after the broker's return"
        f" (limit {ISR_LIMIT_S} s)",
    )


def what_next() -> None:
    say("the cluster stays up; what to type next:")
    if os.environ.get("USE_CURRENT_CONTEXT") != "1":
        console.print('  eval "$(dev/node.sh env)"', markup=False)
    console.print(f"  kubectl get plimsoll -n {NAMESPACE}")
    console.print(f"  kubectl get topic {TOPIC} -n {NAMESPACE} -o yaml")
    console.print(f"  kubectl get configmap {VERIFICATION}-report -n {NAMESPACE} "
                  "-o jsonpath='{.data.report\\.html}' > report.html", markup=False)  # fmt: skip
    console.print("  to tear down:")
    console.print(f"  kubectl delete namespace {NAMESPACE}")
    console.print(f"  helm uninstall plimsoll -n {OPERATOR_NAMESPACE}")
    if os.environ.get("USE_CURRENT_CONTEXT") != "1":
        console.print("  dev/node.sh destroy")


def main() -> int:
    began = time.monotonic()
    story = Story()
    cluster = bring_up()
    try:
        install_chart(cluster)
        apply_examples(cluster)
        story.before = wait_for("the operator's view of the topic", lambda: view(cluster), 60)
        wait_until_writing(cluster)
        kill_and_watch(cluster, story)
        status = wait_for_verdict(cluster)
        stalls = stalls_ms(cluster)
        show(story, stalls)
        judge(story, status, stalls)
    except (GaveUp, CommandFailed, subprocess.SubprocessError) as error:
        console.print(f"[red]demo failed:[/] {error}", soft_wrap=True)
        return 1
    what_next()
    say(f"{'done' if not story.shortfalls else 'fell short'} in {time.monotonic() - began:.0f} s")
    return 1 if story.shortfalls else 0


if __name__ == "__main__":
    sys.exit(main())
