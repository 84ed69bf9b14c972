"""The chart as it renders: what it may do, what its pods may do, and what it refuses.

Needs helm, which `dev/node.sh install` makes; without it these tests say so.
"""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from dev import quick_yaml

from plimsoll_operator.api import labels
from plimsoll_operator.options import from_environment

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "plimsoll"
CRDS = ROOT / "crds"
EVERYTHING = (
    "verification.enabled=true",
    "metrics.podMonitor.enabled=true",
    "metrics.prometheusRule.enabled=true",
)


@cache
def tool(name: str) -> str:
    """A program from the PATH or from the local node's folder."""
    env = subprocess.run(
        ["bash", "-c", f'eval "$("{ROOT}/dev/node.sh" env)"; echo "$PATH"'],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    found = shutil.which(name, path=f"{os.environ['PATH']}:{env}")
    if found is None:
        pytest.skip(f"{name} is not installed: dev/node.sh install")
    return found


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tool("helm"), *arguments], capture_output=True, text=True, check=False, timeout=300
    )


@cache
def rendered(*settings: str) -> tuple[dict[str, Any], ...]:
    flags = [flag for setting in settings for flag in ("--set", setting)]
    done = helm(
        "template", "plimsoll", str(CHART), "-n", "plimsoll-system",
        "--kube-version", "1.34.0", *flags,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return tuple(one for one in quick_yaml.load_all(done.stdout) if one)


def of_kind(kind: str, *settings: str) -> list[dict[str, Any]]:
    return [one for one in rendered(*settings) if one["kind"] == kind]


def test_lint_finds_nothing():
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def test_charts_crds_are_the_projects():
    ours = {path.name: path.read_text() for path in CRDS.glob("*.yaml")}
    copies = {path.name: path.read_text() for path in (CHART / "files" / "crds").glob("*.yaml")}
    assert copies == ours, "run: cp crds/*.yaml helm/plimsoll/files/crds/"


def test_crds_survive_an_uninstall():
    found = of_kind("CustomResourceDefinition")
    assert len(found) == len(list(CRDS.glob("*.yaml")))
    for crd in found:
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def rules(*settings: str) -> list[tuple[str, dict[str, Any]]]:
    roles = [*of_kind("ClusterRole", *settings), *of_kind("Role", *settings)]
    return [(role["metadata"]["name"], rule) for role in roles for rule in role["rules"]]


@pytest.mark.parametrize("settings", [(), EVERYTHING], ids=["defaults", "everything"])
def test_rbac_has_no_wildcards_and_no_cluster_admin(settings: tuple[str, ...]):
    assert rules(*settings)
    for name, rule in rules(*settings):
        for field, values in rule.items():
            assert not any("*" in one for one in values), (name, field, rule)
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"]), (name, rule)
        if "secrets" in rule.get("resources", ()):
            assert set(rule["verbs"]) <= {"get", "create", "update"}, "never listed, never watched"
    for binding in of_kind("ClusterRoleBinding", *settings):
        assert binding["roleRef"]["name"] != "cluster-admin"


def test_operator_cannot_write_users_or_delete_log():
    for name, rule in rules(*EVERYTHING):
        if name != "plimsoll":
            continue
        if set(rule.get("resources", ())) & {
            "logclusters",
            "topics",
            "reassignments",
            "rebalances",
            "verifications",
        }:
            # Drains and fills are Rebalances that the operator makes, and removes.
            # Scheduled Verifications are its own, too.
            own = rule.get("resources", ()) in (["rebalances"], ["verifications"])
            allowed = {"create", "list", "delete"} if own else {"get", "list", "watch"}
            assert set(rule["verbs"]) <= allowed
        if "metadatabatches" in rule.get("resources", ()):
            assert "delete" not in rule["verbs"]
        if "pods" in rule.get("resources", ()) and "create" not in rule["verbs"]:
            assert set(rule["verbs"]) <= {"get", "list", "watch", "delete"}


def test_job_and_role_rights_come_only_with_verifications():
    def powers(*settings: str) -> set[str]:
        own = [rule for name, rule in rules(*settings) if name == "plimsoll"]
        return {resource for rule in own for resource in rule.get("resources", ())}

    assert powers("verification.enabled=true") - powers() == {"jobs", "roles", "rolebindings"}


def test_pods_are_made_only_with_executors():
    def makes_pods(*settings: str) -> bool:
        own = [rule for name, rule in rules(*settings) if name == "plimsoll"]
        return any(
            "pods" in rule.get("resources", ()) and "create" in rule["verbs"] for rule in own
        )

    assert not makes_pods("verification.enabled=true")
    assert not makes_pods("verification.executors=true")
    assert makes_pods("verification.enabled=true", "verification.executors=true")


def test_drills_rights_and_their_limits_come_together():
    def writes(*settings: str) -> bool:
        own = [rule for name, rule in rules(*settings) if name == "plimsoll"]
        return any(
            rule.get("resources", ()) == ["logclusters"] and rule["verbs"] == ["patch"]
            for rule in own
        )

    enabled, drills = "verification.enabled=true", "verification.drills=true"
    assert not writes(enabled)
    assert not writes(drills)
    assert writes(enabled, drills)
    limits = {"drilled-logclusters", "drilled-reassignments"}
    assert limits <= set(confining(enabled, drills))
    assert not limits & set(confining(enabled))


def test_operator_deletes_own_pod_only_for_drills():
    def deletes(*settings: str) -> bool:
        watched = "watch.namespaces={shop}"
        return any(
            rule.get("resources") == ["pods"] and rule["verbs"] == ["get", "delete"]
            for name, rule in rules(watched, "verification.enabled=true", *settings)
            if name == "plimsoll-authorities"
        )

    assert not deletes()
    assert deletes("verification.drills=true")


def test_nodes_are_read_only_for_racks():
    def about_nodes(*settings: str) -> list[dict[str, Any]]:
        return [rule for _, rule in rules(*settings) if "nodes" in rule.get("resources", ())]

    (rule,) = about_nodes()
    assert rule["verbs"] == ["get"]
    assert rule.get("resources", ()) == ["nodes"]
    assert about_nodes("rbac.readNodes=false") == []


def test_operator_pods_are_restricted():
    (deployment,) = of_kind("Deployment")
    assert deployment["spec"]["replicas"] == 2
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_rendered_objects_have_namespace_and_unique_names():
    seen = set()
    for one in rendered(*EVERYTHING):
        key = (one["kind"], one["metadata"]["name"])
        assert key not in seen
        seen.add(key)
        assert one["metadata"].get("namespace") in (None, "plimsoll-system")


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("replica=3", "replica"),
        ("replicas=0", "replicas"),
        ("controller.port=0", "port"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("metrics.prometheusRule.enable=true", "enable"),
        ("metrics.port=9101", "must differ"),
    ],
)
def test_misspelt_and_impossible_values_are_refused(setting: str, sentence: str):
    done = helm("template", "plimsoll", str(CHART), "--kube-version", "1.34.0", "--set", setting)
    assert done.returncode != 0
    assert sentence in done.stderr


def test_single_operator_pod_lets_nodes_be_drained() -> None:
    (budget,) = of_kind("PodDisruptionBudget")
    assert budget["spec"]["minAvailable"] == 1
    assert of_kind("PodDisruptionBudget", "replicas=1") == []
    half = "podDisruptionBudget.minAvailable=50%"
    assert of_kind("PodDisruptionBudget", "replicas=1", half) == []
    assert of_kind("PodDisruptionBudget", "replicas=3", half) != []


def test_schema_has_every_value_of_the_defaults():
    def undescribed(values: dict[str, Any], schema: dict[str, Any], path: str) -> list[str]:
        found = []
        for key, value in values.items():
            described = schema.get("properties", {}).get(key)
            if described is None:
                found.append(f"{path}.{key}")
            elif isinstance(value, dict) and "properties" in described:
                found += undescribed(value, described, f"{path}.{key}")
        return found

    schema = quick_yaml.load((CHART / "values.schema.json").read_text())
    values = quick_yaml.load((CHART / "values.yaml").read_text())
    assert undescribed(values, schema, "") == []


def test_brokers_are_scraped_everywhere_with_owner():
    def of_brokers(*settings: str) -> dict[str, Any]:
        found = of_kind("PodMonitor", "metrics.podMonitor.enabled=true", *settings)
        (monitor,) = (one for one in found if one["metadata"]["name"] == "plimsoll-brokers")
        return monitor["spec"]

    spec = of_brokers()
    own = labels.labels("main", UUID(int=1), "broker")
    assert spec["selector"]["matchLabels"].items() <= own.items()
    assert spec["namespaceSelector"] == {"any": True}
    assert of_brokers("watch.namespaces={kafka,shop}")["namespaceSelector"] == {
        "matchNames": ["kafka", "shop"]
    }
    (endpoint,) = spec["podMetricsEndpoints"]
    assert endpoint["port"] == "metrics"
    taken = {one["targetLabel"]: one["sourceLabels"] for one in endpoint["relabelings"]}
    meta = "__meta_kubernetes_pod_label_"
    assert taken == {
        "cluster": [meta + re.sub("[./-]", "_", labels.CLUSTER)],
        "broker": [meta + re.sub("[./-]", "_", labels.BROKER_ID)],
    }


def test_operator_has_one_probe_which_restarts_nothing():
    (deployment,) = of_kind("Deployment", "health.port=9105")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"controller": 9093, "metrics": 9100, "health": 9105}
    assert container["readinessProbe"]["httpGet"]["port"] == "health"
    restarting = {"startupProbe", "livenessProbe"} & set(container)
    assert not restarting, "a kubelet cannot tell a hung operator from a starved one"
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert env["PLIMSOLL_HEALTH_PORT"] == "9105"


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (("watch.namespaces={shop,bank}",), ["shop", "bank"]),
        (("networkPolicy.brokerNamespaces={kafka}",), ["kafka"]),
        (("watch.namespaces={shop,team}", "networkPolicy.brokerNamespaces={shop}"), ["shop"]),
    ],
)
def test_network_policy_admits_named_namespaces_brokers_only(
    settings: tuple[str, ...], names: list[str]
):
    """Who may create pods elsewhere may give them a broker's labels."""
    (policy,) = of_kind("NetworkPolicy", *settings)
    key = "kubernetes.io/metadata.name"
    expected = {"matchExpressions": [{"key": key, "operator": "In", "values": names}]}
    rules = [*policy["spec"]["ingress"], *policy["spec"]["egress"]]
    peers = [peer for rule in rules for peer in rule.get("from") or rule.get("to") or ()]
    assert [peer["namespaceSelector"] for peer in peers] == [expected, expected]


def test_network_policy_names_both_directions():
    peer = "networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus"
    (policy,) = of_kind("NetworkPolicy", peer)
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    ingress = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["spec"]["ingress"]}
    assert ingress[9093][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "broker"
    assert ingress[9100] == [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]
    assert ingress[9101] is None, "the kubelet"
    egress = {rule["ports"][0]["port"]: rule for rule in policy["spec"]["egress"]}
    assert set(egress) == {53, 443, labels.REPLICATION_PORT}
    assert {port["port"] for port in egress[53]["ports"]} == {53, 5353}
    assert [port["port"] for port in egress[443]["ports"]] == list(labels.API_SERVER_PORTS)
    brokers = egress[labels.REPLICATION_PORT]
    assert brokers["to"][0]["podSelector"]["matchLabels"] == {
        labels.NAME: "plimsoll",
        labels.COMPONENT: "broker",
    }
    (deployment,) = of_kind("Deployment", peer)
    env = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    told = {one["name"]: one.get("value") for one in env}
    options = from_environment({**{k: v for k, v in told.items() if v}, "POD_NAMESPACE": "there"})
    assert options.metrics_from == ({"podSelector": {"matchLabels": {"app": "prometheus"}}},)
    assert options.api_server_ports == labels.API_SERVER_PORTS
    assert options.namespace == "there"


def test_log_level_change_restarts_no_operator():
    def told(level: str) -> tuple[str, Any]:
        (level_map,) = [
            one for one in of_kind("ConfigMap", f"log.level={level}")
            if one["metadata"]["name"].endswith("-log")
        ]  # fmt: skip
        (deployment,) = of_kind("Deployment", f"log.level={level}")
        volumes = deployment["spec"]["template"]["spec"]["volumes"]
        assert {"name": level_map["metadata"]["name"]} in [v.get("configMap") for v in volumes]
        return level_map["data"]["level"], deployment["spec"]["template"]

    (info, before), (debug, after) = told("info"), told("debug")
    assert (info, debug) == ("info", "debug")
    assert before == after


def test_topic_deletion_warns_and_is_allowed() -> None:
    (policy,) = of_kind("ValidatingAdmissionPolicy", "admission.enabled=false")
    (binding,) = of_kind("ValidatingAdmissionPolicyBinding", "admission.enabled=false")
    assert binding["spec"] == {
        "policyName": policy["metadata"]["name"],
        "validationActions": ["Warn"],
    }
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["DELETE"], ["topics"])
    assert policy["spec"]["failurePolicy"] == "Ignore"
    for one in policy["spec"]["validations"]:
        assert "\n" not in one["messageExpression"]
    (bound,) = of_kind(
        "ValidatingAdmissionPolicyBinding", "watch.namespaces={a,b}", "admission.enabled=false"
    )
    (named,) = bound["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert named["values"] == ["a", "b"]
    assert all(
        "deletion" not in one["metadata"]["name"]
        for one in of_kind("ValidatingAdmissionPolicy", "deletionWarnings.enabled=false")
    )


def confining(*settings: str) -> dict[str, dict[str, Any]]:
    """The policies about what the operator writes: by the kind that they are about, and the two
    about all kinds by `objects` and `namespaces`."""
    found = of_kind("ValidatingAdmissionPolicy", "deletionWarnings.enabled=false", *settings)
    return {
        name.removeprefix("plimsoll-operator-"): one["spec"]
        for one in found
        if (name := one["metadata"]["name"]).startswith("plimsoll-operator-")
    }


def about(spec: dict[str, Any]) -> set[str]:
    """The kinds of a policy."""
    rules = spec["matchConstraints"]["resourceRules"]
    return {resource for rule in rules for resource in rule["resources"]}


def test_admission_policy_binds_operators_account_only() -> None:
    """Every kind that it may create of those; verdicts: tests/e2e/test_admission.py."""
    settings = "verification.enabled=true"
    rights = quick_yaml.load((CHART / "files" / "rights.yaml").read_text())["namespaced"]
    written = {
        resource
        for one in rights
        if {"create", "update", "patch"} & {*one["rule"]["verbs"]}
        for resource in one["rule"]["resources"]
    }
    runs = {"pods", "statefulsets", "deployments", "daemonsets", "jobs", "cronjobs", "replicasets"}
    holds = {"secrets", "serviceaccounts", "serviceaccounts/token"}
    found = confining(settings)
    assert written & (runs | holds) == set(found) & (runs | holds)
    for name in set(found) - {"objects", "namespaces"}:
        assert about(found[name]) == {name}
    # What is of Kubernetes itself; what is the operator's own kind, or a status, is not.
    own = {"events", "tokenreviews", "subjectaccessreviews"}
    own |= {one for one in written if "/" in one}
    own |= {
        "rebalances",
        "logbrokers",
        "verifications",
        "logclusters",
        "reassignments",
        "metadatabatches",
        "metadatasnapshots",
    }
    changed = {
        resource
        for one in rights
        if {"create", "update", "patch", "delete"} & {*one["rule"]["verbs"]}
        for resource in one["rule"]["resources"]
    }
    assert about(found["namespaces"]) == changed - own
    apart = {"leases", "secrets", "persistentvolumeclaims", "pods"}
    assert about(found["objects"]) == changed - own - apart
    for name in ("objects", "namespaces"):
        for rule in found[name]["matchConstraints"]["resourceRules"]:
            assert rule["operations"] == ["CREATE", "UPDATE", "DELETE"]
    (anywhere,) = found["namespaces"]["validations"]
    assert "['kube-system', 'kube-public', 'kube-node-lease']" in anywhere["expression"]
    who = "request.userInfo.username == 'system:serviceaccount:plimsoll-system:plimsoll'"
    for spec in found.values():
        assert [one["expression"] for one in spec["matchConditions"]] == [who]
        assert spec["failurePolicy"] == "Fail"
    for binding in of_kind("ValidatingAdmissionPolicyBinding", "deletionWarnings.enabled=false"):
        assert binding["spec"]["validationActions"] == ["Deny"]
        assert "matchResources" not in binding["spec"], "in every namespace"
    assert {"jobs", "verifications"} <= set(found)
    assert not {"jobs", "verifications"} & set(confining())
    assert confining("admission.enabled=false") == {}


def test_author_must_be_able_to_read_drivers_secrets() -> None:
    """For schedules, too; the operator makes their Verifications."""

    def policies(*settings: str) -> list[Any]:
        found = of_kind("ValidatingAdmissionPolicy", *settings)
        return [one["spec"] for one in found if "author" in one["metadata"]["name"]]

    assert policies() == policies("verification.enabled=true", "admission.enabled=false") == []
    (policy,) = policies("verification.enabled=true")
    assert about(policy) == {"verifications", "verificationschedules"}
    assert policy["failurePolicy"] == "Fail"
    named = {one["name"]: one["expression"] for one in policy["variables"]}
    assert ".?source.?mirrorOf.?secret" in named["mirror"]
    assert ".?evidence.?s3.?secret" in named["bucket"]
    assert "user + '-kafka'" in named["login"]
    assert {one["expression"] for one in policy["validations"]} == {
        f"variables.{name} == '' || authorizer.group('').resource('secrets')"
        f".namespace(request.namespace) .name(variables.{name}).check('get').allowed()"
        for name in ("mirror", "bucket", "login")
    }
    assert [one["reason"] for one in policy["validations"]] == ["Forbidden"] * 3
    (operator, _) = policy["matchConditions"]
    assert operator["expression"].startswith("request.userInfo.username != 'system:serviceaccount:")


def test_allowed_images_can_be_named() -> None:
    def named(*settings: str) -> list[str]:
        rows = confining(*settings)["statefulsets"]["validations"]
        return [one["expression"] for one in rows if "c.image" in one["expression"]]

    assert named() == []
    (only,) = named("admission.images={registry.example.com/a,plimsoll/}")
    assert "startsWith('registry.example.com/a') || c.image.startsWith('plimsoll/')" in only
    done = helm("template", "x", str(CHART), "--set", "admission.images={a'b}")
    assert done.returncode != 0


def test_backups_volume_and_ports_reach_the_operator() -> None:
    def pod(*settings: str) -> Any:
        (deployment,) = of_kind("Deployment", *settings)
        return deployment["spec"]["template"]["spec"]

    def mounted(spec: Any) -> dict[str, str]:
        (container,) = spec["containers"]
        return {one["name"]: one["mountPath"] for one in container["volumeMounts"]}

    def option(spec: Any) -> Path | None:
        env = {one["name"]: one["value"] for one in spec["containers"][0]["env"] if "value" in one}
        return from_environment(env).backup_directory

    assert "backup" not in mounted(pod())
    assert option(pod()) is None
    spec = pod("backup.persistentVolumeClaim=metadata", "backup.ports={9000}")
    claims = {one["name"]: one.get("persistentVolumeClaim") for one in spec["volumes"]}
    assert claims["backup"] == {"claimName": "metadata"}
    assert str(option(spec)) == mounted(spec)["backup"]
    (policy,) = of_kind("NetworkPolicy", "backup.ports={9000}")
    ports = [one["ports"] for one in policy["spec"]["egress"]]
    assert [{"port": 9000, "protocol": "TCP"}] in ports


@pytest.mark.parametrize(
    ("setting", "granted", "option"),
    [
        ("externalAccess.tlsRoutes=true", {"tlsroutes", "gateways"}, "tls_routes"),
        ("certManager.enabled=true", {"certificates"}, "certificates"),
    ],
)
def test_third_party_objects_are_written_on_request_only(
    setting: str, granted: set[str], option: str
) -> None:
    def powers(*settings: str) -> set[str]:
        return {one for _, rule in rules(*settings) for one in rule.get("resources", ())}

    def told(*settings: str) -> bool:
        (deployment,) = of_kind("Deployment", *settings)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        env = {one["name"]: one["value"] for one in container["env"] if "value" in one}
        return bool(getattr(from_environment(env), option))

    assert powers(setting) - powers() == granted
    assert (told(), told(setting)) == (False, True)
