"""What the API server takes from whoever has the operator's token (chart: `admission`): dry runs by
the operator's ServiceAccount.  That the operator itself is let do its work all other tests show.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from dev.kubectl import Cluster, CommandFailed, wait_for
from tests.e2e.release import SYSTEM

OPERATOR = f"system:serviceaccount:{SYSTEM}:plimsoll"
OWN = {"app.kubernetes.io/managed-by": "plimsoll-operator"}
REFUSED = "not what Plimsoll's operator writes: "
POD: dict[str, Any] = {
    "serviceAccountName": "main-broker",
    "automountServiceAccountToken": False,
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "broker",
            "image": "plimsoll/broker:dev",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
    ],
    "volumes": [{"name": "tmp", "emptyDir": {}}],
}


def stateful_set(**pod: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {**copy.deepcopy(POD), **pod}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "tried", "labels": {**OWN, "plimsoll.dev/cluster": "main"}},
        "spec": {
            "serviceName": "x",
            "selector": {"matchLabels": {"a": "b"}},
            "template": template,
        },
    }


def job(account: str) -> dict[str, Any]:
    pod = {**copy.deepcopy(POD), "restartPolicy": "Never", "serviceAccountName": account}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "v-driver", "labels": {**OWN, "plimsoll.dev/verification": "v"}},
        "spec": {"template": {"spec": pod}},
    }


def pod() -> dict[str, Any]:
    meta = {"name": "tried", "labels": OWN}
    spec = {**copy.deepcopy(POD), "serviceAccountName": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def secret(kind: str) -> dict[str, Any]:
    note = {"kubernetes.io/service-account.name": "default"}
    body = {"metadata": {"name": "tried", "annotations": note}, "type": kind}
    return {"apiVersion": "v1", "kind": "Secret", **body}


def account(labels: dict[str, str], **annotations: str) -> dict[str, Any]:
    meta = {"name": "tried", "labels": labels}
    if annotations:
        meta["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}


def container(**stated: Any) -> dict[str, Any]:
    """A broker's, with this in its securityContext."""
    (one,) = copy.deepcopy(POD["containers"])
    return {**one, "securityContext": {**one["securityContext"], **stated}}


def of_pod(**stated: Any) -> dict[str, Any]:
    """A StatefulSet with this in its pods' securityContext."""
    return stateful_set(securityContext={**POD["securityContext"], **stated})


def beside(**stated: Any) -> dict[str, Any]:
    """A StatefulSet with such a container among its initContainers."""
    return stateful_set(initContainers=[{**container(**stated), "name": "before"}])


def config_map(**meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tried", **meta}}


def service(labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    ports = [{"port": 9092}]
    spec = {"selector": {"plimsoll.dev/cluster": "main"}, "ports": ports, **spec}
    meta = {"name": "tried", "labels": labels}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


def lease(name: str) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}


def network_policy(component: str) -> dict[str, Any]:
    selector = {"matchLabels": {"app.kubernetes.io/component": component}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "tried", "labels": OWN},
        "spec": {"podSelector": selector, "ingress": [{}]},
    }


VERIFICATION: dict[str, Any] = {
    "clusterRef": {"name": "main"},
    "topic": "orders",
    "produce": {"records": 1},
}


def verification(*owners: str, **spec: Any) -> dict[str, Any]:
    """A Verification of these kinds' objects."""
    references = [
        {"apiVersion": "plimsoll.dev/v1alpha1", "kind": kind, "name": "x", "uid": "u"}
        for kind in owners
    ]
    return {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "Verification",
        "metadata": {"name": "tried", "labels": OWN, "ownerReferences": references},
        "spec": {**VERIFICATION, **spec},
    }


def schedule(**template: Any) -> dict[str, Any]:
    return {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "VerificationSchedule",
        "metadata": {"name": "tried"},
        "spec": {"schedule": "0 2 * * *", "template": {**VERIFICATION, **template}},
    }


def without_label(body: dict[str, Any]) -> dict[str, Any]:
    body["metadata"]["labels"] = {"plimsoll.dev/cluster": "main"}
    return body


TOKEN = {"serviceAccountToken": {"path": "token"}}
TRIED = {
    "another account": (stateful_set(serviceAccountName="default"), "its ServiceAccount"),
    "no account": (stateful_set(serviceAccountName=""), "its ServiceAccount"),
    "its token": (stateful_set(automountServiceAccountToken=True), "it mounts its"),
    "a projected token": (
        stateful_set(volumes=[{"name": "t", "projected": {"sources": [TOKEN]}}]),
        "it mounts something else",
    ),
    "the node's files": (
        stateful_set(volumes=[{"name": "h", "hostPath": {"path": "/"}}]),
        "it mounts something else",
    ),
    "the node's network": (stateful_set(hostNetwork=True), "it shares something"),
    "root": (stateful_set(securityContext={}), "it may run as root"),
    "privileges": (
        stateful_set(containers=[container(allowPrivilegeEscalation=True)]),
        "a container may gain",
    ),
    "a privileged container before": (
        beside(privileged=True, allowPrivilegeEscalation=True),
        "a container may gain",
    ),
    "root in a container": (stateful_set(containers=[container(runAsUser=0)]), "it may run as"),
    "root before": (beside(runAsNonRoot=False), "it may run as root"),
    "root by number": (of_pod(runAsUser=0), "it may run as root"),
    "capabilities": (
        stateful_set(containers=[container(capabilities={"add": ["SYS_MODULE"], "drop": ["ALL"]})]),
        "a container has capabilities",
    ),
    "capabilities that are kept": (beside(capabilities={}), "a container has capabilities"),
    "no seccomp": (of_pod(seccompProfile={"type": "Unconfined"}), "it has another seccomp"),
    "no seccomp in a container": (
        stateful_set(containers=[container(seccompProfile={"type": "Unconfined"})]),
        "it has another seccomp",
    ),
    "no AppArmor": (beside(appArmorProfile={"type": "Unconfined"}), "it has another AppArmor"),
    "SELinux": (of_pod(seLinuxOptions={"type": "spc_t"}), "it states SELinux"),
    "sysctls": (of_pod(sysctls=[{"name": "kernel.shm_rmid_forced", "value": "1"}]), "it states"),
    "a port of the node's": (
        stateful_set(containers=[{**container(), "ports": [{"containerPort": 1, "hostPort": 1}]}]),
        "it has a port of the node's",
    ),
    "anybody's ConfigMap": (config_map(), "it has no label"),
    "anybody's Service": (service({}), "it has no label"),
    "a Service of other pods": (service(OWN, selector={"a": "b"}), "it selects pods of no"),
    "somebody else's addresses": (service(OWN, externalIPs=["192.0.2.1"]), "it takes addresses"),
    "another name": (
        service(OWN, type="ExternalName", externalName="evil.example"),
        "it takes addresses",
    ),
    "anybody's Lease": (lease("kube-scheduler"), "a Lease of this name"),
    "a NetworkPolicy of others": (network_policy("web"), "it is about pods"),
    "no label": (without_label(stateful_set()), "it has no label"),
    "a Job of another account": (job("default"), "its ServiceAccount"),
    "an account's token": (secret("kubernetes.io/service-account-token"), "a Secret of this type"),
    "anybody's Secret": (secret("Opaque"), "a Secret of this type"),
    "anybody's account": (account({}), "it has no label"),
    "a pod": (pod(), "it makes no pods itself"),
    "anybody's Verification": (verification("Topic"), "it belongs to no VerificationSchedule"),
    "an account with a role of the cloud's": (
        account(OWN, **{"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/x"}),
        "its annotations",
    ),
}
LET_BE = {
    "brokers": stateful_set(),
    "a driver": job("v-driver"),
    "certificates": secret("plimsoll.dev/tls"),
    "a login": secret("plimsoll.dev/user"),
    "the secret of executors": secret("plimsoll.dev/rpc"),
    "an account": account(OWN),
    "a configuration": config_map(labels=OWN),
    "an address": service(OWN),
    "who leads": lease("main-0123456789ab"),
    "who reaches brokers": network_policy("broker"),
    "who reaches executors": network_policy("executor"),
    "a scheduled Verification": verification("VerificationSchedule"),
}


def try_to_make(cluster: Cluster, namespace: str, body: dict[str, Any], who: str = OPERATOR) -> str:
    """What is said against it; empty: nothing is."""
    asked = ("create", "--dry-run=server", "-n", namespace, "-f", "-", "--as", who)
    try:
        cluster.kubectl(*asked, stdin=json.dumps(body))
    except CommandFailed as refused:
        return str(refused)
    return ""


def test_operator_token_writes_only_operators_objects(operator: Cluster, namespace: str) -> None:
    for name, (body, why) in TRIED.items():
        assert REFUSED + why in try_to_make(operator, namespace, body), name
    for name, body in LET_BE.items():
        assert try_to_make(operator, namespace, body) == "", name


def test_operator_token_takes_no_foreign_secret(operator: Cluster, namespace: str) -> None:
    """Neither does it change what is there; two policies refuse each."""
    patch = json.dumps({"metadata": {"labels": OWN, "annotations": {"role": "x"}}})
    with pytest.raises(CommandFailed, match=REFUSED):
        operator.kubectl(
            "patch", "serviceaccount", "default", "-n", namespace, "-p", patch,
            "--dry-run=server", "--as", OPERATOR,
        )  # fmt: skip
    operator.kubectl("create", "secret", "generic", "mine", "-n", namespace, "--from-literal=a=b")
    body = json.loads(operator.kubectl("get", "secret", "mine", "-n", namespace, "-o", "json"))
    with pytest.raises(CommandFailed, match=REFUSED):
        operator.kubectl(
            "replace", "-f", "-", "--dry-run=server", "--as", OPERATOR,
            stdin=json.dumps({**body, "data": {"a": "Yw=="}}),
        )  # fmt: skip


def test_operators_token_takes_nothing_of_kubernetes_own(operator: Cluster, namespace: str) -> None:
    """Neither makes nor changes nor deletes it, whatever labels it is given.  Where two policies
    refuse, the API server tells one of their sentences, either of them."""
    for body in (config_map(labels=OWN), lease("main-0123456789ab"), service(OWN)):
        said = try_to_make(operator, "kube-system", body)
        assert REFUSED + "nothing of it is in a namespace" in said
    patch = json.dumps({"metadata": {"labels": OWN}, "spec": {"type": "NodePort"}})
    with pytest.raises(CommandFailed, match=REFUSED):
        operator.kubectl(
            "patch", "service", "kubernetes", "-n", "default", "-p", patch,
            "--dry-run=server", "--as", OPERATOR,
        )  # fmt: skip
    operator.kubectl("create", "configmap", "mine", "-n", namespace)
    with pytest.raises(CommandFailed, match="it is somebody else's"):
        operator.kubectl(
            "delete", "configmap", "mine", "-n", namespace, "--dry-run=server", "--as", OPERATOR
        )


def test_operators_token_deletes_verifications_past_their_time(
    operator: Cluster, namespace: str
) -> None:
    """Those of its schedules, and those that state how long they stay."""
    for name, spec in (("kept", {}), ("passing", {"ttlAfterFinished": "1h"})):
        body = verification(**spec)
        body["metadata"] = {"name": name}
        operator.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(body))
    asked = ("delete", "verification", "-n", namespace, "--dry-run=server", "--as", OPERATOR)
    operator.kubectl(*asked, "passing")
    with pytest.raises(CommandFailed, match="it is somebody else's"):
        operator.kubectl(*asked, "kept")


def test_schedules_template_obeys_rules_of_verifications(operator: Cluster, namespace: str) -> None:
    asked = ("create", "--dry-run=server", "-n", namespace, "-f", "-")
    operator.kubectl(*asked, stdin=json.dumps(schedule(allowExisting=True)))
    with pytest.raises(CommandFailed, match="allowExisting must be true"):
        operator.kubectl(*asked, stdin=json.dumps(schedule()))
    produce = {"records": 1, "acks": "Leader", "idempotent": True}
    body = schedule(allowExisting=True, produce=produce)
    with pytest.raises(CommandFailed, match="idempotent needs"):
        operator.kubectl(*asked, stdin=json.dumps(body))


def test_author_names_only_secrets_it_may_read(operator: Cluster, namespace: str) -> None:
    """Of a mirror, of a bucket and of a User, in a Verification and in a schedule's template."""
    here, kinds = ("-n", namespace), "verifications.plimsoll.dev,verificationschedules.plimsoll.dev"
    for user, secrets in (("author", ["other"]), ("reader", ["mirror", "bucket", "app-kafka"])):
        operator.kubectl("create", "role", user, *here, "--verb=create", f"--resource={kinds}")
        operator.kubectl("create", "rolebinding", user, *here, f"--role={user}", f"--user={user}")
        named, name = [f"--resource-name={one}" for one in secrets], f"{user}-secret"
        operator.kubectl("create", "role", name, *here, "--verb=get", "--resource=secrets", *named)
        operator.kubectl("create", "rolebinding", name, *here, f"--role={name}", f"--user={user}")

    def audit(secret_name: str | None) -> dict[str, Any]:
        of = {"bootstrap": "kafka.other:9092"} | ({"secret": secret_name} if secret_name else {})
        body = verification()
        source = {"existingTopics": {"matchPattern": "orders"}, "mirrorOf": of}
        body["spec"] = {"clusterRef": {"name": "main"}, "source": source}
        body["metadata"] = {"name": "tried"}
        return body

    def said(body: dict[str, Any], who: str) -> str:
        return try_to_make(operator, namespace, body, who)

    wait_for("the rights", lambda: said(audit("mirror"), "reader") == "" or None, 30)
    wait_for("the other's rights", lambda: said(audit(None), "author") == "" or None, 30)
    kept = {"s3": {"bucket": "proofs", "secret": "bucket"}}
    for secret, spec in (
        ("mirror", audit("mirror")["spec"]),
        ("bucket", verification(allowExisting=True, evidence=kept)["spec"]),
        ("app-kafka", verification(allowExisting=True, user="app")["spec"]),
    ):
        once, scheduled = {**audit(None), "spec": spec}, schedule()
        scheduled["spec"]["template"] = spec
        for body in (once, scheduled):
            assert f"Secret {secret}, which author may not read" in said(body, "author")
            assert said(body, "reader") == ""


def test_others_are_not_restricted(operator: Cluster, namespace: str) -> None:
    body = stateful_set(serviceAccountName="default", automountServiceAccountToken=True)
    asked = ("create", "--dry-run=server", "-n", namespace, "-f", "-")
    operator.kubectl(*asked, stdin=json.dumps(body))
