"""Builds the objects for the executors of a Verification: the template of their pods, which Spark
completes, and the Secret by which driver and executors authenticate each other.

Called by `verification`. Spark sets the pods' image, resources, names and environment; everything
else is in the template, which Pod Security's level `restricted` admits.
"""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from decimal import Decimal

from plimsoll_operator.api import labels
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.api.quantities import amount, binary
from plimsoll_operator.api.verification import Runner
from plimsoll_operator.kube.resources import SECRETS
from plimsoll_operator.manifests.statefulset import container_security, pod_security, pull_secrets

TEMPLATE_FILE = "executor.json"
SECRET_DIRECTORY = "/etc/plimsoll-rpc"
SECRET_FILE = "secret"
COMMAND = ("python3", "-m", "plimsoll_spark.executor")
"""The command of an executor's container. Spark appends the argument `executor`."""
SCRATCH = "spark-local-dir-1"
"""Name by which Spark recognises the volume for its own temporary files."""
MIB = 2**20
HEAP_MIB_LEAST = 512
"""Smallest heap of an executor in MiB. Spark refuses executors with a heap below 450 MiB."""
OVERHEAD_MIB_LEAST = 384
"""Smallest memory in MiB outside the heap, for JVM and Python, with which one range of a topic can
be checked."""
TASK_MIB = 190
"""Memory in MiB outside the heap of each further task: a Python process of its own. The same as the
driver's (`plimsoll_spark.cgroup`)."""
MEMORY_MIB_DEFAULT = 1024
HEAP_SHARE = Decimal("0.375")
"""Share of an executor's memory that the heap gets. Most of the work is done by Python processes,
outside the heap."""
CORES_MAX = 8
PODS_RULE: Manifest = {
    "apiGroups": [""],
    "resources": ["pods"],
    "verbs": ["get", "list", "watch", "create", "delete", "deletecollection"],
}
"""Rule of a Role that lets a driver create, watch and delete its executors' pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSize:
    """Resources of one executor's pod. `cores`: number of tasks that it runs at the same time;
    `cpu`, `cpu_limit`: Kubernetes quantities; `heap_mib`, `overhead_mib`: the memory in MiB, of the
    JVM's heap and of the rest, which add up to the pod's."""

    cores: int
    cpu: str
    cpu_limit: str | None
    heap_mib: int
    overhead_mib: int


def executor_size(runner: Runner) -> ExecutorSize | str:
    """Return the size of each executor by the spec's `executorResources`, with defaults for what
    they leave unset, or a sentence that says that their memory is too small. It has no more tasks
    than its memory can hold: one more, and the kernel kills the pod again and again."""
    resources = runner.executor_resources
    requests = (resources and resources.requests) or {}
    limits = (resources and resources.limits) or {}
    cpu_limit = limits.get("cpu")
    cpu = requests.get("cpu", "100m" if cpu_limit is None else cpu_limit)
    memory = limits.get("memory") or requests.get("memory") or MEMORY_MIB_DEFAULT * MIB
    mib = int(amount(memory) / MIB)
    heap = max(HEAP_MIB_LEAST, int(mib * HEAP_SHARE))
    if mib - heap < OVERHEAD_MIB_LEAST:
        least = binary((HEAP_MIB_LEAST + OVERHEAD_MIB_LEAST) * MIB)
        return f"runner.executorResources has {memory} of memory; set {least} or more."
    cores = max(1, math.ceil(amount(cpu if cpu_limit is None else cpu_limit)))
    cores = min(cores, CORES_MAX, 1 + (mib - heap - OVERHEAD_MIB_LEAST) // TASK_MIB)
    return ExecutorSize(
        cores=cores,
        cpu=str(cpu),
        cpu_limit=None if cpu_limit is None else str(cpu_limit),
        heap_mib=heap,
        overhead_mib=mib - heap,
    )


def executor_labels(verification: str) -> dict[str, str]:
    """Return the labels of the executors' pods."""
    return {
        labels.NAME: "plimsoll",
        labels.COMPONENT: labels.EXECUTOR,
        labels.MANAGED_BY: labels.OPERATOR,
        labels.EXECUTOR_OF: verification,
    }


def secret_name(verification: str) -> str:
    return f"{verification}-rpc"


def rpc_secret(metadata: Manifest, secret: str) -> Manifest:
    """Build the Secret that authenticates and encrypts Spark's RPC. `secret`: random text."""
    data = {SECRET_FILE: base64.b64encode(secret.encode()).decode()}
    return SECRETS.manifest(metadata, type=labels.RPC_SECRET, data=data)


def secret_volume(verification: str) -> Manifest:
    return {"name": "rpc", "secret": {"secretName": secret_name(verification)}}


SECRET_MOUNT: Manifest = {"name": "rpc", "mountPath": SECRET_DIRECTORY, "readOnly": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorTemplate:
    """The input of `template`. `verification`: its name; `login`: the name of the Secret by which a
    driver logs in, empty: no login; `login_directory`: where that is mounted; `temporary`: the one
    writable directory."""

    verification: str
    login: str
    login_directory: str
    temporary: str
    image_pull_secrets: tuple[str, ...]
    set_user: bool


def template(asked: ExecutorTemplate) -> str:
    """Return the template of the executors' pods, as JSON."""
    login = [asked.login] if asked.login else []
    container: Manifest = {
        "name": "executor",
        "command": list(COMMAND),
        "securityContext": container_security(),
        "volumeMounts": [
            {"name": SCRATCH, "mountPath": asked.temporary},
            SECRET_MOUNT,
            *(
                {"name": "login", "mountPath": asked.login_directory, "readOnly": True}
                for _ in login
            ),
        ],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": executor_labels(asked.verification)},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **pull_secrets(asked.image_pull_secrets),
            "securityContext": pod_security(set_user=asked.set_user),
            "containers": [container],
            "volumes": [
                {"name": SCRATCH, "emptyDir": {"sizeLimit": "4Gi"}},
                secret_volume(asked.verification),
                *({"name": "login", "secret": {"secretName": name}} for name in login),
            ],
        },
    }
    return json.dumps(pod, indent=1, sort_keys=True) + "\n"
