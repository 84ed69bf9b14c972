"""Builds the objects that run a Verification: the driver's Job, its configuration, and the right to
write one ConfigMap."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from plimsoll_operator.api import labels
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.api.quantities import bytes_per_second
from plimsoll_operator.api.verification import Runner, Verification, Verify
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    JOBS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from plimsoll_operator.manifests.executors import (
    PODS_RULE,
    SECRET_DIRECTORY,
    SECRET_FILE,
    SECRET_MOUNT,
    TEMPLATE_FILE,
    ExecutorSize,
    ExecutorTemplate,
    executor_size,
    rpc_secret,
    secret_name,
    secret_volume,
    template,
)
from plimsoll_operator.manifests.networkpolicy import (
    BrokersOf,
    DriverPorts,
    driver_policy,
    executor_policy,
    with_executors,
)
from plimsoll_operator.manifests.statefulset import container_security, pod_security, pull_secrets

FILE = "verification.json"
DIRECTORY = "/etc/plimsoll"
LOGIN = "/etc/plimsoll-login"
TEMPORARY = "/tmp"
ENVIRONMENT = {"HOME": TEMPORARY, "SPARK_LOCAL_DIRS": TEMPORARY}
"""Environment variables of every driver. Spark and the JVM write below the home directory, and the
root file system is read-only."""
POD_ENVIRONMENT: tuple[Manifest, ...] = (
    {"name": "PLIMSOLL_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    {"name": "PLIMSOLL_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
)
"""How a driver with executors knows the pod that owns them and the address that they connect to."""
LABELS = {
    labels.NAME: "plimsoll",
    labels.COMPONENT: "verification",
    labels.MANAGED_BY: labels.OPERATOR,
}
PODS = "pods"
"""The field of the driver's configuration that says how to make pods of executors."""
DEADLINE_SECONDS_DEFAULT = 3600
# The driver stops itself at the deadline and needs time to report why before its Job ends it.
LAST_WORDS_SECONDS = 240
RESOURCES_DEFAULT: Manifest = {
    "requests": {"cpu": "100m", "memory": "768Mi"},
    "limits": {"memory": "2Gi"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkDriver:
    """The input of all builders of one driver. `manifest_context.Context` explains its fields."""

    verification: Verification
    image: str
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...] = ()
    set_user: bool = True
    api_server_ports: tuple[int, ...] = labels.API_SERVER_PORTS
    kafka_port: int = labels.KAFKA_PORT
    """The port of the listener to which the driver connects."""
    servers: str = ""
    """The brokers' addresses at that listener, comma-separated; empty: the bootstrap Service."""
    once_compacted: tuple[str, ...] = ()
    """For an audit: topics that are compacted no more; their logs may have gaps."""
    login: str = ""
    """The name of the Secret by which the driver logs in; empty: no login."""
    rpc_secret: str = ""  # random text, the secret of the RPC between driver and executors
    output: str = ""
    """Where a user finds the driver's log output; `{job}` stands for the name of its Job."""
    previous: Manifest | None = None  # the row of the schedule's last run, if any

    @property
    def name(self) -> str:
        return self.verification.metadata.name

    @property
    def job(self) -> str:
        return job_name(self.name)

    @property
    def report(self) -> str:
        """Return the name of the ConfigMap to which the driver writes its report."""
        return f"{self.name}-report"

    @property
    def where_it_says(self) -> str:
        """Return `output` (the place of the driver's log) with its Job's name filled in."""
        return self.output.replace("{job}", f"{self.name}-driver")

    @property
    def executors(self) -> int:
        return (self.verification.spec.runner or Runner()).executors or 0

    def metadata(self, name: str) -> Manifest:
        meta = self.verification.metadata
        owner = labels.owner("Verification", meta.name, meta.uid)
        named = {"name": name, "namespace": meta.namespace}
        return {**named, "labels": self.labels, "ownerReferences": owner}

    @property
    def deadline_seconds(self) -> int:
        return self.verification.spec.deadline_seconds or DEADLINE_SECONDS_DEFAULT

    @property
    def labels(self) -> dict[str, str]:
        return {**LABELS, labels.VERIFICATION: self.name}


def job_name(verification: str) -> str:
    return f"{verification}-driver"


def children(driver: SparkDriver) -> list[Manifest]:
    """Return all objects of the driver, in the order in which to apply them: its Job comes last."""
    return [
        service_account(driver),
        role(driver),
        role_binding(driver),
        report(driver),
        config(driver),
        *policies(driver),
        *_rpc_secrets(driver),
        job(driver),
    ]


def policies(driver: SparkDriver) -> list[Manifest]:
    """Build the NetworkPolicies of the driver and of its executors."""
    policy = driver_policy(
        driver.metadata(f"{driver.name}-driver"),
        _selector(driver),
        *driver.verification.cluster_key,
        DriverPorts(driver.kafka_port, driver.api_server_ports),
    )
    if not driver.executors:
        return [policy]
    executors = {labels.COMPONENT: labels.EXECUTOR, labels.EXECUTOR_OF: driver.name}
    return [
        with_executors(policy, executors),
        executor_policy(
            driver.metadata(f"{driver.name}-executor"),
            executors,
            _selector(driver),
            BrokersOf(*driver.verification.cluster_key, driver.kafka_port),
        ),
    ]


def _selector(driver: SparkDriver) -> dict[str, str]:
    return {labels.COMPONENT: "verification", labels.VERIFICATION: driver.name}


def _rpc_secrets(driver: SparkDriver) -> list[Manifest]:
    if not driver.executors:
        return []
    return [rpc_secret(driver.metadata(secret_name(driver.name)), driver.rpc_secret)]


def service_account(driver: SparkDriver) -> Manifest:
    return SERVICE_ACCOUNTS.manifest(
        driver.metadata(f"{driver.name}-driver"), automountServiceAccountToken=False
    )


def role(driver: SparkDriver, *, runs: bool = True) -> Manifest:
    """Build the Role that lets the driver read and patch its report's ConfigMap, and nothing else;
    with executors also make their pods. `runs`: False once the run has ended, and no more pods are
    made."""
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [driver.report],
        "verbs": ["get", "patch"],
    }
    pods = [PODS_RULE] if driver.executors and runs else []
    return ROLES.manifest(driver.metadata(f"{driver.name}-driver"), rules=[rule, *pods])


def role_binding(driver: SparkDriver) -> Manifest:
    name = f"{driver.name}-driver"
    return ROLE_BINDINGS.manifest(
        driver.metadata(name),
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        subjects=[
            {
                "kind": "ServiceAccount",
                "name": name,
                "namespace": driver.verification.metadata.namespace,
            }
        ],
    )


def report(driver: SparkDriver) -> Manifest:
    """Build the ConfigMap for the report, without data; the driver patches the data in."""
    return CONFIG_MAPS.manifest(driver.metadata(driver.report))


def config(driver: SparkDriver) -> Manifest:
    """Build the ConfigMap with the file that `python -m plimsoll_spark.verification --config`
    reads."""
    verification = driver.verification
    spec = verification.spec
    namespace, cluster = verification.cluster_key
    content: dict[str, Any] = {
        "name": driver.name,
        "bootstrap": driver.servers
        or labels.bootstrap_address(cluster, namespace, driver.kafka_port),
        "deadlineSeconds": driver.deadline_seconds,
        **(_audit(driver) if spec.source else _workload(driver)),
        "verify": msgspec.to_builtins(spec.verify or Verify()),
        **({"budget": msgspec.to_builtins(spec.budget)} if spec.budget else {}),
        "report": {"configMap": driver.report, "namespace": namespace},
    }
    if driver.previous is not None:
        content["previous"] = driver.previous
    if spec.user is not None:
        content["user"] = spec.user
    files = {}
    if driver.executors:
        content["runner"] = _executors(driver)
        files[TEMPLATE_FILE] = template(
            ExecutorTemplate(
                verification=driver.name,
                login=driver.login,
                login_directory=LOGIN,
                temporary=TEMPORARY,
                image_pull_secrets=driver.image_pull_secrets,
                set_user=driver.set_user,
            )
        )
    return CONFIG_MAPS.manifest(
        driver.metadata(f"{driver.name}-config"),
        data={FILE: json.dumps(content, indent=2, sort_keys=True) + "\n", **files},
    )


def _workload(driver: SparkDriver) -> Manifest:
    spec = driver.verification.spec
    return {
        "topic": spec.topic,
        "allowExisting": bool(spec.allow_existing),
        "produce": msgspec.to_builtins(spec.produce),
    }


def _audit(driver: SparkDriver) -> Manifest:
    source = driver.verification.spec.source
    assert source is not None, "the caller looked"
    content: dict[str, Any] = {
        "existingTopics": {
            "matchPattern": source.existing_topics.match_pattern,
            "compacted": list(driver.once_compacted),
        },
        "reads": source.reads or "Disk",
    }
    if source.bytes_per_second is not None:
        content["bytesPerSecond"] = bytes_per_second(source.bytes_per_second)
    return {"source": content}


def _executors(driver: SparkDriver) -> Manifest:
    """Build the part of the driver's configuration about executors."""
    size = executor_size(driver.verification.spec.runner or Runner())
    assert isinstance(size, ExecutorSize), "the reconciler has refused others"
    return {
        "executors": driver.executors,
        "cores": size.cores,
        "heapMegabytes": size.heap_mib,
        "overheadMegabytes": size.overhead_mib,
        PODS: {
            "namespace": driver.verification.metadata.namespace,
            "owner": driver.name,
            "image": driver.image,
            "imagePullPolicy": driver.image_pull_policy,
            "cpu": size.cpu,
            "cpuLimit": size.cpu_limit,
            "template": f"{DIRECTORY}/{TEMPLATE_FILE}",
            "secret": f"{SECRET_DIRECTORY}/{SECRET_FILE}",
        },
    }


def job(driver: SparkDriver) -> Manifest:
    """Build the driver's Job. It has no retries: a second attempt would find the records of the
    first in the topic."""
    return JOBS.manifest(
        driver.metadata(f"{driver.name}-driver"),
        spec={
            "backoffLimit": 0,
            "activeDeadlineSeconds": LAST_WORDS_SECONDS
            + (driver.verification.spec.deadline_seconds or DEADLINE_SECONDS_DEFAULT),
            "template": {"metadata": {"labels": driver.labels}, "spec": _pod(driver)},
        },
    )


def arguments(*, with_login: bool) -> list[str]:
    login = ("--login", LOGIN) if with_login else ()
    return ["--config", f"{DIRECTORY}/{FILE}", *login]


def _pod(driver: SparkDriver) -> Manifest:
    runner = driver.verification.spec.runner or Runner()
    resources = msgspec.to_builtins(runner.resources) if runner.resources else RESOURCES_DEFAULT
    login = [driver.login] if driver.login else []
    rpc = [secret_volume(driver.name)] if driver.executors else []
    container = {
        "name": "driver",
        "image": runner.image or driver.image,
        "imagePullPolicy": driver.image_pull_policy,
        "args": arguments(with_login=bool(login)),
        "env": [
            *({"name": name, "value": value} for name, value in ENVIRONMENT.items()),
            *(POD_ENVIRONMENT if driver.executors else ()),
        ],
        "resources": resources,
        "securityContext": container_security(),
        "volumeMounts": [
            {"name": "config", "mountPath": DIRECTORY, "readOnly": True},
            {"name": "tmp", "mountPath": TEMPORARY},
            *({"name": "login", "mountPath": LOGIN, "readOnly": True} for _ in login),
            *(SECRET_MOUNT for _ in rpc),
        ],
    }
    return {
        "restartPolicy": "Never",
        "serviceAccountName": f"{driver.name}-driver",
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        **pull_secrets(driver.image_pull_secrets),
        "securityContext": pod_security(set_user=driver.set_user),
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": f"{driver.name}-config"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "8Gi"}},
            *({"name": "login", "secret": {"secretName": name}} for name in login),
            *rpc,
        ],
    }
