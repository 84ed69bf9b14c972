"""Builds the objects that run a Verification: the driver's Job, its configuration, and the right to
write one ConfigMap."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from plimsoll_operator.api import labels
from plimsoll_operator.api.continuous import WINDOW_DEFAULT
from plimsoll_operator.api.evidence import EvidenceStore
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
EVIDENCE = "/var/lib/plimsoll-evidence"
BUCKET_LOGIN = "/etc/plimsoll-bucket"
MIRROR_LOGIN = "/etc/plimsoll-mirror"
MIRROR_KEY_NEEDED = "librdkafka.conf"
MIRROR_KEYS = (MIRROR_KEY_NEEDED, "ca.crt")
"""The keys of the Secret of `source.mirrorOf` that are mounted."""
BUCKET_KEYS_NEEDED = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
BUCKET_KEYS = (*BUCKET_KEYS_NEEDED, "AWS_SESSION_TOKEN", "ca.crt")
"""The keys of the Secret of `evidence.s3` that are mounted."""
TEMPORARY = "/tmp"
ENVIRONMENT = {"HOME": TEMPORARY, "SPARK_LOCAL_DIRS": TEMPORARY}
"""Environment variables of every driver. Spark and the JVM write below the home directory, and the
root file system is read-only."""
POD_ENVIRONMENT: tuple[Manifest, ...] = (
    {"name": "PLIMSOLL_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    {"name": "PLIMSOLL_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
)
"""Environment variables by which a driver with executors learns its pod's name (the pod owns the
executors) and the address to which they connect."""
LABELS = {
    labels.NAME: "plimsoll",
    labels.COMPONENT: "verification",
    labels.MANAGED_BY: labels.OPERATOR,
}
PODS = "pods"
"""The field of the driver's configuration that says how to make pods of executors."""
DEADLINE_SECONDS_DEFAULT = 3600
TIMEOUT_SECONDS_DEFAULT = 600
"""Seconds that the driver takes at most for reading the topic back, if the spec states nothing."""
# The driver stops itself at the deadline and needs time to report why before its Job ends it.
LAST_WORDS_SECONDS = 240
ATTEMPTS = 2
"""The most drivers that work on a run with evidence: the second judges the ledger of one that
died."""
CONTINUOUS_PODS_MAX = 1_000_000
ENDINGS = [1, 2]
"""Exit codes of a driver that has said why it failed, or why it refused: no second driver starts
then."""
RESOURCES_DEFAULT: Manifest = {
    "requests": {"cpu": "500m", "memory": "1Gi"},
    "limits": {"memory": "2Gi"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkDriver:
    """The input of all builders of one driver. `manifest_context.Context` explains the fields
    without a docstring."""

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
    """Place where a user finds the driver's log output, as text. `{job}` in it stands for the name
    of the driver's Job."""
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
        return deadline_seconds(self.verification)

    @property
    def labels(self) -> dict[str, str]:
        return {**LABELS, labels.VERIFICATION: self.name}


def run_name(verification: str, uid: str) -> str:
    """Return the name of a run in its evidence. `uid`: the Verification's, by which runs of
    Verifications with the same name differ."""
    return f"{verification}-{uid[:8]}"


def deadline_seconds(verification: Verification) -> int:
    """Return the bound on the run; 0: a continuous run without one."""
    spec = verification.spec
    return spec.deadline_seconds or (0 if spec.is_continuous else DEADLINE_SECONDS_DEFAULT)


def timeout_seconds(verification: Verification) -> int:
    """Return the seconds that the driver takes at most for reading the topic back."""
    verify = verification.spec.verify
    return (verify and verify.timeout_seconds) or TIMEOUT_SECONDS_DEFAULT


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
    port = bucket_port(driver.verification.spec.evidence)
    source = driver.verification.spec.source
    elsewhere = source is not None and source.mirror_of is not None
    policy = driver_policy(
        driver.metadata(f"{driver.name}-driver"),
        _selector(driver),
        *driver.verification.cluster_key,
        DriverPorts(driver.kafka_port, driver.api_server_ports, port, elsewhere=elsewhere),
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
    if spec.evidence is not None:
        place = msgspec.to_builtins(spec.evidence)
        if "s3" in place:
            del place["s3"]["secret"]
        content["evidence"] = {
            **place,
            "run": run_name(driver.name, verification.metadata.uid),
            "attempts": ATTEMPTS,
        }
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
    mode = {"mode": spec.mode, "window": spec.window or WINDOW_DEFAULT}
    return {
        **(mode if spec.is_continuous else {}),
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
            "onceCompacted": _digests(driver.verification.metadata.uid, driver.once_compacted),
        },
        "reads": source.reads or "Disk",
    }
    if source.bytes_per_second is not None:
        content["bytesPerSecond"] = bytes_per_second(source.bytes_per_second)
    if (other := source.mirror_of) is not None:
        content["mirrorOf"] = {
            "bootstrap": other.bootstrap,
            "hasLogin": other.secret is not None,
            "prefix": other.prefix or "",
        }
    return {"source": content}


def _digests(salt: str, names: Collection[str]) -> Manifest:
    """Return digests by which the driver recognises these names among those that it sees. Its
    configuration may be read by users that may not describe the topics."""
    digests = (hashlib.sha256(f"{salt}:{name}".encode()).hexdigest() for name in names)
    return {"salt": salt, "digests": sorted(digests)}


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
    """Build the driver's Job. A continuous run always has another driver. If the evidence of
    another run is kept, a second driver follows one that dies, and judges its ledger. Else none
    follows: it would find the records of the first in the topic."""
    template = {"metadata": {"labels": driver.labels}, "spec": _pod(driver)}
    if driver.verification.spec.is_continuous:
        # It ends with exit code 2 if it is refused; a pod that is lost always has a successor.
        codes = {"containerName": "driver", "operator": "In", "values": [2]}
        spec: Manifest = {
            "backoffLimit": CONTINUOUS_PODS_MAX,
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]},
        }
        if driver.deadline_seconds:
            spec["activeDeadlineSeconds"] = LAST_WORDS_SECONDS + driver.deadline_seconds
    elif driver.verification.spec.evidence is None:
        spec = {
            "backoffLimit": 0,
            "activeDeadlineSeconds": LAST_WORDS_SECONDS + driver.deadline_seconds,
        }
    else:
        codes = {"containerName": "driver", "operator": "In", "values": ENDINGS}
        spec = {
            "backoffLimit": ATTEMPTS - 1,
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]},
            "activeDeadlineSeconds": ATTEMPTS * LAST_WORDS_SECONDS
            + driver.deadline_seconds
            + timeout_seconds(driver.verification),
        }
    return JOBS.manifest(
        driver.metadata(f"{driver.name}-driver"), spec={**spec, "template": template}
    )


def arguments(mounts: Collection[str]) -> list[str]:
    """Return the command-line arguments of a driver. `mounts`: the paths at which its pod mounts
    volumes; arguments about a login or evidence depend on them."""
    options = (
        ("--login", LOGIN),
        ("--evidence", EVIDENCE),
        ("--bucket-login", BUCKET_LOGIN),
        ("--mirror-login", MIRROR_LOGIN),
    )
    return [
        "--config",
        f"{DIRECTORY}/{FILE}",
        *(word for option in options if option[1] in mounts for word in option),
    ]


def bucket_port(store: EvidenceStore | None) -> int | None:
    """Return the port of the S3 server to which the driver connects, or None if the evidence is not
    kept in S3. Raises ValueError if `s3.endpoint` is not a URL: the CRD's pattern accepts an IPv6
    address that is none."""
    if store is None or store.s3 is None:
        return None
    url = urlsplit(store.s3.endpoint or "https:")
    return url.port or (80 if url.scheme == "http" else 443)


def _evidence_volumes(store: EvidenceStore | None) -> dict[str, tuple[str, Manifest]]:
    """Return the volumes of the evidence, by name: where each is mounted, and its source."""
    if store is None:
        return {}
    if store.s3 is None:
        claim = {"claimName": store.persistent_volume_claim}
        return {"evidence": (EVIDENCE, {"persistentVolumeClaim": claim})}
    # No other key of the Secret can be read by the driver, whatever its image.
    items = [{"key": key, "path": key} for key in BUCKET_KEYS]
    secret = {"secretName": store.s3.secret, "items": items, "optional": True}
    return {"bucket-login": (BUCKET_LOGIN, {"secret": secret})}


def mirror_secret(verification: Verification) -> str | None:
    """Return the name of the Secret for the cluster of `source.mirrorOf`; None: no login."""
    source = verification.spec.source
    return None if source is None or source.mirror_of is None else source.mirror_of.secret


def _mirror_volumes(driver: SparkDriver) -> dict[str, tuple[str, Manifest]]:
    """Return the volume with that Secret, as `_evidence_volumes` does."""
    name = mirror_secret(driver.verification)
    if name is None:
        return {}
    items = [{"key": key, "path": key} for key in MIRROR_KEYS]
    secret = {"secretName": name, "items": items, "optional": True}
    return {"mirror-login": (MIRROR_LOGIN, {"secret": secret})}


def _pod(driver: SparkDriver) -> Manifest:
    runner = driver.verification.spec.runner or Runner()
    resources = msgspec.to_builtins(runner.resources) if runner.resources else RESOURCES_DEFAULT
    login = [driver.login] if driver.login else []
    rpc = [secret_volume(driver.name)] if driver.executors else []
    evidence = _evidence_volumes(driver.verification.spec.evidence) | _mirror_volumes(driver)
    mounts: list[Manifest] = [
        {"name": "config", "mountPath": DIRECTORY, "readOnly": True},
        {"name": "tmp", "mountPath": TEMPORARY},
        *({"name": "login", "mountPath": LOGIN, "readOnly": True} for _ in login),
        *(
            {"name": name, "mountPath": path, **({"readOnly": True} if "secret" in source else {})}
            for name, (path, source) in evidence.items()
        ),
        *(SECRET_MOUNT for _ in rpc),
    ]
    container = {
        "name": "driver",
        "image": runner.image or driver.image,
        "imagePullPolicy": driver.image_pull_policy,
        "args": arguments([str(one["mountPath"]) for one in mounts]),
        "env": [
            *({"name": name, "value": value} for name, value in ENVIRONMENT.items()),
            *(POD_ENVIRONMENT if driver.executors else ()),
        ],
        "resources": resources,
        "securityContext": container_security(),
        "volumeMounts": mounts,
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
            *({"name": name, **source} for name, (_, source) in evidence.items()),
        ],
    }
