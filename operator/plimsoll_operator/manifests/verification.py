"""Builds the objects that run a Verification: the driver's Job, its configuration, and the right to
write one ConfigMap."""

from __future__ import annotations

import json
from dataclasses import dataclass

import msgspec

from plimsoll_operator.api import labels
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.api.verification import Runner, Verification, Verify
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    JOBS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from plimsoll_operator.manifests.networkpolicy import DriverPorts, driver_policy
from plimsoll_operator.manifests.statefulset import container_security, pod_security, pull_secrets

FILE = "verification.json"
DIRECTORY = "/etc/plimsoll"
LOGIN = "/etc/plimsoll-login"
TEMPORARY = "/tmp"
ENVIRONMENT = {"HOME": TEMPORARY, "SPARK_LOCAL_DIRS": TEMPORARY}
"""Environment variables of every driver. Spark and the JVM write below the home directory, and the
root file system is read-only."""
DEADLINE_SECONDS_DEFAULT = 3600
# The driver stops itself at the deadline and needs time to report why before its Job ends it.
LAST_WORDS_SECONDS = 240
RESOURCES_DEFAULT: Manifest = {
    "requests": {"cpu": "100m", "memory": "768Mi"},
    "limits": {"memory": "2Gi"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkDriver:
    """The input of all builders for one Verification's driver. Fields that
    `manifest_context.Context` has too mean the same."""

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
    login: str = ""
    """The name of the Secret by which the driver logs in; empty: no login."""
    output: str = ""
    """Where a user finds the driver's log output; `{job}` stands for the name of its Job."""

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
        """Return `output` with the name of this driver's Job filled in."""
        return self.output.replace("{job}", f"{self.name}-driver")

    def metadata(self, name: str) -> Manifest:
        meta = self.verification.metadata
        return {
            "name": name,
            "namespace": meta.namespace,
            "labels": self.labels,
            "ownerReferences": labels.owner("Verification", meta.name, meta.uid),
        }

    @property
    def deadline_seconds(self) -> int:
        return self.verification.spec.deadline_seconds or DEADLINE_SECONDS_DEFAULT

    @property
    def labels(self) -> dict[str, str]:
        return {
            labels.NAME: "plimsoll",
            labels.COMPONENT: "verification",
            labels.MANAGED_BY: labels.OPERATOR,
            labels.VERIFICATION: self.name,
        }


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
        driver_policy(
            driver.metadata(f"{driver.name}-driver"),
            {labels.COMPONENT: "verification", labels.VERIFICATION: driver.name},
            *driver.verification.cluster_key,
            DriverPorts(driver.kafka_port, driver.api_server_ports),
        ),
        job(driver),
    ]


def service_account(driver: SparkDriver) -> Manifest:
    return SERVICE_ACCOUNTS.manifest(
        driver.metadata(f"{driver.name}-driver"), automountServiceAccountToken=False
    )


def role(driver: SparkDriver) -> Manifest:
    """Build the Role that lets the driver read and patch its report's ConfigMap, and nothing
    else."""
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [driver.report],
        "verbs": ["get", "patch"],
    }
    return ROLES.manifest(driver.metadata(f"{driver.name}-driver"), rules=[rule])


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
    content = {
        "name": driver.name,
        "bootstrap": driver.servers
        or labels.bootstrap_address(cluster, namespace, driver.kafka_port),
        "topic": spec.topic,
        "allowExisting": bool(spec.allow_existing),
        "deadlineSeconds": driver.deadline_seconds,
        "produce": msgspec.to_builtins(spec.produce),
        "verify": msgspec.to_builtins(spec.verify or Verify()),
        "report": {"configMap": driver.report, "namespace": namespace},
    }
    if spec.user is not None:
        content["user"] = spec.user
    return CONFIG_MAPS.manifest(
        driver.metadata(f"{driver.name}-config"),
        data={FILE: json.dumps(content, indent=2, sort_keys=True) + "\n"},
    )


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
    container = {
        "name": "driver",
        "image": runner.image or driver.image,
        "imagePullPolicy": driver.image_pull_policy,
        "args": arguments(with_login=bool(login)),
        "env": [{"name": name, "value": value} for name, value in ENVIRONMENT.items()],
        "resources": resources,
        "securityContext": container_security(),
        "volumeMounts": [
            {"name": "config", "mountPath": DIRECTORY, "readOnly": True},
            {"name": "tmp", "mountPath": TEMPORARY},
            *({"name": "login", "mountPath": LOGIN, "readOnly": True} for _ in login),
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
        ],
    }
