"""`make demo-kubernetes`: a real Kubernetes, a broker killed in mid-write, and the verdict.

Brings up the local node (or, with USE_CURRENT_CONTEXT=1, uses the current kubectl context), builds
the images, installs the chart, applies `examples/`, kills broker 0 with SIGKILL while Spark writes,
and prints what happened. Clients log in over TLS and need rights; with OPEN=1 every client that
reaches a broker may read and write. The exit code is 1 if a check failed, 2 if something only took
too long. The cluster stays up.
"""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from typing import Any

import yaml
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
)
from dev.kubectl import (
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

OPEN = os.environ.get("OPEN") == "1"
ADMIN = "admin"
CHECKER = "orders-check"
"""Name of the user as which Spark logs in."""
OPERATOR_NAMESPACE = "plimsoll-system"
NAMESPACE = "kafka"

steps = Steps()


class InKubernetes:
    """The `DemoCluster` on Kubernetes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def view(self) -> View | None:
        """Return leaders and ISRs as the active operator's view shows them, or None if no operator
        answers."""
        path = f"/v1/clusters/{NAMESPACE}/{CLUSTER}/topics/{TOPIC}"
        try:
            view = self._cluster.operator_view(path, OPERATOR_NAMESPACE)
        except CommandFailed:
            return None
        if view is None:
            return None
        found = view["partitions"]
        return View(
            at=time.time(),
            leaders={one["partition"]: one["leader"] for one in found},
            isr={one["partition"]: one["isr"] for one in found},
            replicas={one["partition"]: one["replicas"] for one in found},
        )

    def verification(self) -> dict[str, Any]:
        found = self._cluster.get("verification", VERIFICATION, NAMESPACE)
        return (found or {}).get("status") or {}

    def kill_broker(self) -> None:
        """Send SIGKILL to the broker's process, from inside its pod, whose containers share one
        process namespace."""
        code = (
            "import os,signal,pathlib\n"
            "for d in pathlib.Path('/proc').iterdir():\n"
            "  if d.name.isdigit() and b'plimsoll_broker' in (d/'cmdline').read_bytes() "
            "and int(d.name)!=os.getpid() "
            "and b'-c' not in (d/'cmdline').read_bytes().split(b'\\0'):\n"
            "    os.kill(int(d.name), signal.SIGKILL)\n"
        )
        pod = f"{CLUSTER}-broker-{VICTIM}-0"
        inside = ("exec", "-n", NAMESPACE, pod, "-c", "broker", "--")
        try:
            self._cluster.kubectl(*inside, "python3", "-c", code)
        except CommandFailed as error:
            # A process in a container ends with it, perhaps before it has reported that it is
            # done.
            if f"exit code {128 + signal.SIGKILL}" not in str(error):
                raise

    def restarted_at(self, killed_at: float) -> float | None:
        """Return the time when the kubelet restarted the broker's container; None before that."""
        pod = self._cluster.get("pod", f"{CLUSTER}-broker-{VICTIM}-0", NAMESPACE)
        for one in ((pod or {}).get("status") or {}).get("containerStatuses", []):
            started = one.get("state", {}).get("running", {}).get("startedAt")
            if started:
                at = datetime.fromisoformat(started).timestamp()
                if at >= int(killed_at):
                    return at
        return None

    def report(self) -> dict[str, str]:
        found = self._cluster.get("configmap", f"{VERIFICATION}-report", NAMESPACE) or {}
        data: dict[str, str] = found.get("data") or {}
        return data


def bring_up() -> Cluster:
    """Return a Kubernetes cluster in which our images are available; start the local node if
    necessary."""
    if os.environ.get("USE_CURRENT_CONTEXT") == "1":
        cluster = Cluster(dict(os.environ))
        context = cluster.kubectl("config", "current-context").strip()
        steps.say(f"using the current kubectl context, {context}")
        return cluster
    steps.say("dev/node.sh up images: Kubernetes, compiled when it is not there yet")
    subprocess.run([str(NODE), "up", "images"], check=True, stdout=subprocess.DEVNULL)
    steps.say("dev/images.sh: the operator's, the broker's and Spark's, into the node")
    subprocess.run([str(ROOT / "dev" / "images.sh")], check=True)
    return Cluster(local_environment())


def install_chart(cluster: Cluster) -> None:
    steps.say("helm: the operator")
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
    steps.say("kubectl apply -f examples/, with maintenance.allowDrills")
    with_previous = cluster.get("namespace", NAMESPACE, NAMESPACE)
    if with_previous:
        cluster.kubectl("delete", "verification", VERIFICATION, "-n", NAMESPACE,
                        "--ignore-not-found", "--wait=true", timeout_s=90)  # fmt: skip
        wait_for("the last run's Spark pod to go", lambda: spark_pods(cluster) == [] or None, 90)
    else:
        cluster.kubectl("create", "namespace", NAMESPACE)
    # Brokers that a process beside them may kill: that is this demo's wish, not a user's.
    example = read_example("logcluster" if OPEN else "logcluster-secured")
    example["spec"]["maintenance"] = {"allowDrills": True}
    check = read_example("verification")
    users = () if OPEN else (read_example(f"user-{ADMIN}"), read_example(f"user-{CHECKER}"))
    if not OPEN:
        check["spec"]["user"] = CHECKER
    for manifest in (example, *users, read_example("topic-orders"), check):
        cluster.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(manifest))
    for kind, name in (("logcluster", CLUSTER), ("topic", TOPIC)):
        wait_for(
            f"{kind}/{name} to be Ready",
            lambda kind=kind, name=name: (
                is_true(cluster.get(kind, name, NAMESPACE), "Ready") or None
            ),
            180,
        )
        console.print(f"  {kind}/{name} is Ready")
    if not OPEN:
        wait_for(
            "the listeners to refuse clients without a login",
            lambda: is_true(cluster.get("logcluster", CLUSTER, NAMESPACE), "Secure") or None,
            180,
        )
        console.print(f"  logcluster/{CLUSTER} is Secure")
    # Another image than last time rolls the brokers that are there.
    wait_for("every broker to run this image", lambda: has_settled(cluster) or None, 300)


def read_example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text())
    return found


def has_settled(cluster: Cluster) -> bool:
    found = condition(cluster.get("logcluster", CLUSTER, NAMESPACE), "Reconciling")
    return found is not None and found["status"] == "False"


def spark_pods(cluster: Cluster) -> list[dict[str, Any]]:
    return cluster.items("pods", NAMESPACE, f"plimsoll.dev/verification={VERIFICATION}")


def what_next() -> None:
    steps.say("the cluster stays up; what to type next:")
    if os.environ.get("USE_CURRENT_CONTEXT") != "1":
        console.print('  eval "$(dev/node.sh env)"', markup=False)
    console.print(f"  kubectl get plimsoll -n {NAMESPACE}")
    console.print(f"  kubectl get topic {TOPIC} -n {NAMESPACE} -o yaml")
    console.print(f"  kubectl get configmap {VERIFICATION}-report -n {NAMESPACE} "
                  "-o jsonpath='{.data.report\\.html}' > report.html", markup=False)  # fmt: skip
    if not OPEN:
        console.print("  clients log in; a pod that mounts this Secret at /login:")
        console.print(f"  kubectl get secret {ADMIN}-kafka -n {NAMESPACE}")
        console.print("  kcat -F /login/librdkafka.conf -X ssl.ca.location=/login/ca.crt -L")
    console.print("  to tear down:")
    console.print(f"  kubectl delete namespace {NAMESPACE}")
    console.print(f"  helm uninstall plimsoll -n {OPERATOR_NAMESPACE}")
    if os.environ.get("USE_CURRENT_CONTEXT") != "1":
        console.print(
            "  dev/node.sh down       # stops the node; `up` starts it with all that it has"
        )
        console.print("  dev/node.sh destroy    # removes it for good")


def main() -> int:
    began = time.monotonic()
    story = Story()
    cluster = bring_up()
    try:
        install_chart(cluster)
        apply_examples(cluster)
        kill_and_judge(InKubernetes(cluster), story, steps)
    except (GaveUp, CommandFailed, subprocess.SubprocessError) as error:
        console.print(f"[red]demo failed:[/] {error}", soft_wrap=True)
        return 1
    what_next()
    took_s = time.monotonic() - began
    steps.say(f"{'done' if not story.shortfalls else 'fell short'} in {took_s:.0f} s")
    return story.exit_code


if __name__ == "__main__":
    sys.exit(main())
