"""The chart where clusters differ: private registries, given users, namespaces, hooks."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from dev import quick_yaml
from tests.helm.test_chart import CHART, helm, of_kind, rendered, rules
from typer.testing import CliRunner

from plimsoll_operator import cli
from plimsoll_operator.options import OperatorOptions, from_environment
from plimsoll_operator.preflight.rights import RIGHTS
from plimsoll_operator.shipped_files import ExampleName, example_text

HOOKS = (
    "preflight.enabled=true",
    "verification.enabled=true",
    "verification.executors=true",
    "verification.drills=true",
    "metrics.podMonitor.perLogCluster=true",
    "externalAccess.tlsRoutes=true",
    "certManager.enabled=true",
)
PRIVATE = (*HOOKS, "image.registry=registry.example:5000/mirror", "imagePullSecrets[0].name=pull")
NARROW = (*HOOKS, "watch.namespaces={kafka,shop}")
HOOK = "helm.sh/hook"


def pods(*settings: str) -> dict[str, dict[str, Any]]:
    """Pod specs of everything that the chart makes, by name."""
    found = {}
    for one in rendered(*settings):
        if one["kind"] == "Pod":
            found[one["metadata"]["name"]] = one["spec"]
        elif one["kind"] in ("Deployment", "Job"):
            found[one["metadata"]["name"]] = one["spec"]["template"]["spec"]
    return found


def options(*settings: str) -> OperatorOptions:
    """What the operator makes of its environment."""
    env = pods(*settings)["plimsoll"]["containers"][0]["env"]
    return from_environment({one["name"]: one["value"] for one in env if "value" in one})


def test_pods_are_operator_tests_and_preflight():
    always = {"plimsoll", "plimsoll-test", "plimsoll-test-rights"}
    assert set(pods()) == always
    assert set(pods(*HOOKS)) == always | {"plimsoll-preflight"}


def test_pull_secrets_reach_every_pod():
    for name, pod in pods(*PRIVATE).items():
        assert pod["imagePullSecrets"] == [{"name": "pull"}], name
    assert options(*PRIVATE).image_pull_secrets == ("pull",)
    assert options().image_pull_secrets == ()
    assert options("imagePullSecrets[0].name=a", "imagePullSecrets[1].name=b").image_pull_secrets \
        == ("a", "b")  # fmt: skip


def notes(tmp_path: Path, *settings: str) -> str:
    """NOTES.txt, which `helm template` leaves out: as an object of a chart that is a copy."""
    chart = tmp_path / "plimsoll"
    shutil.copytree(CHART, chart)
    words = (chart / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "NOTES.txt").unlink()
    (chart / "templates" / "_notes.tpl").write_text('{{- define "notes" -}}' + words + "{{- end }}")
    text = 'kind: Notes\ntext: {{ include "notes" . | quote }}\n'
    (chart / "templates" / "notes.yaml").write_text(text)
    values = [word for one in settings for word in ("--set", one)]
    done = helm(
        *("template", "plimsoll", str(chart), "-n", "plimsoll-system", "--kube-version", "1.34.0"),
        *("--show-only", "templates/notes.yaml", *values),
    )
    assert done.returncode == 0, done.stderr
    (found,) = [one for one in quick_yaml.load_all(done.stdout) if one]
    return str(found["text"])


def test_notes_apply_existing_examples(tmp_path: Path):
    """All of `examples/` at once would be three LogClusters of one name."""
    text = notes(tmp_path)
    assert "kubectl create namespace kafka\n" in text
    names = re.findall(r"plimsoll example (\S+) \|", text)
    kinds = [quick_yaml.load(example_text(ExampleName(name)))["kind"] for name in names]
    assert kinds == ["LogCluster", "Topic"]
    assert "pull their image" not in text


def test_notes_name_namespace_and_pull_secret(tmp_path: Path):
    text = notes(tmp_path, *NARROW, "imagePullSecrets[0].name=pull")
    assert "kubectl create namespace" not in text
    assert "| kubectl apply -n kafka -f -\n" in text
    assert "Brokers pull their image with pull: create it in namespace kafka too." in text


def test_registry_reaches_all_three_images_of_every_pod():
    prefix = "registry.example:5000/mirror/plimsoll/"
    for name, pod in pods(*PRIVATE).items():
        assert pod["containers"][0]["image"] == f"{prefix}operator:0.3", name
    found = options(*PRIVATE)
    assert found.images == {"0.2": f"{prefix}broker:0.2", "0.3": f"{prefix}broker:0.3"}
    assert found.broker_image == f"{prefix}broker:0.3"
    assert found.spark_image == f"{prefix}spark:0.3"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image", "meant"),
    [
        ("other.example/spark:1", "other.example/spark:1"),
        ("localhost/spark:1", "localhost/spark:1"),
        ("other:5000/spark@sha256:ab", "other:5000/spark@sha256:ab"),
        ("team/spark@sha256:ab", "mirror.example/team/spark@sha256:ab"),
        ("spark:1", "mirror.example/spark:1"),
    ],
)
def test_image_that_names_its_registry_keeps_it(image: str, meant: str):
    settings = ("verification.enabled=true", "image.registry=mirror.example")
    assert options(*settings, f"images.spark={image}").spark_image == meant


def test_pods_state_no_user_where_cluster_does():
    given = ("podSecurity.setUser=false", *HOOKS)
    for name, pod in pods(*given).items():
        assert pod["securityContext"] == {
            "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"},
        }, name  # fmt: skip
    assert options(*given).set_user is False
    for name, pod in pods(*HOOKS).items():
        assert pod["securityContext"]["runAsUser"] == 10001, name
    assert options().set_user is True


def test_earlier_charts_values_keep_their_meaning():
    """`helm upgrade --reuse-values` brings none of those that are new."""
    earlier = ("podSecurity=null", "preflight=null")
    assert rendered(*earlier) == rendered()


def test_every_pod_of_the_chart_is_restricted():
    for name, pod in pods(*HOOKS).items():
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name


def granted(role: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    }


def listed(*, cluster: bool) -> set[tuple[str, str, str]]:
    return {
        (right.group, resource, verb)
        for right in RIGHTS
        if right.cluster == cluster
        for resource in right.resources
        for verb in right.verbs
    }


def own(kind: str, *settings: str) -> list[dict[str, Any]]:
    return [one for one in of_kind(kind, *settings) if one["metadata"]["name"] == "plimsoll"]


def test_cluster_role_holds_the_list_of_rights():
    (role,) = own("ClusterRole", *HOOKS)
    assert granted(role) == listed(cluster=False) | listed(cluster=True)
    read = {url for rule in role["rules"] for url in rule.get("nonResourceURLs", ())}
    assert read == {url for right in RIGHTS for url in right.urls}
    assert own("Role", *HOOKS) == []


def test_namespaced_rights_are_cluster_wide_reads_only():
    (role,) = own("ClusterRole", *NARROW)
    assert granted(role) == listed(cluster=True)
    # Reviews are questions: the API server stores none of them.
    reviews = {"tokenreviews", "subjectaccessreviews"}
    verbs = {verb for _, resource, verb in granted(role) if resource not in reviews}
    assert verbs <= {"get", "list", "watch"}
    roles = own("Role", *NARROW)
    assert [one["metadata"]["namespace"] for one in roles] == ["kafka", "shop"]
    for one in roles:
        assert granted(one) == listed(cluster=False)
    for binding in own("RoleBinding", *NARROW):
        assert binding["roleRef"]["kind"] == "Role"
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "plimsoll", "namespace": "plimsoll-system"}
        ]
    assert len(own("RoleBinding", *NARROW)) == 2
    assert options(*NARROW).namespaces == ("kafka", "shop")


def test_hooks_write_one_config_map_only():
    writing = [
        rule
        for name, rule in rules(*HOOKS)
        if name in ("plimsoll-preflight", "plimsoll-test") and {*rule["verbs"]} - {"get", "list"}
    ]
    assert [rule["resources"] for rule in writing] == [["configmaps"]] * 2
    assert [rule.get("resourceNames") for rule in writing] == [None, ["plimsoll-preflight"]]
    assert writing[0]["verbs"] == ["create"], "a creation's name cannot be limited"


def test_hooks_create_and_remove_their_rights():
    for event, name in (
        ("pre-install,pre-upgrade", "plimsoll-preflight"),
        ("test", "plimsoll-test"),
    ):
        made = [one for one in rendered(*HOOKS) if one["metadata"]["name"].startswith(name)]
        weights = {}
        for one in made:
            notes = one["metadata"]["annotations"]
            assert notes[HOOK] == event
            assert notes[f"{HOOK}-delete-policy"] == "before-hook-creation,hook-succeeded"
            weights[one["kind"]] = int(notes.get(f"{HOOK}-weight", 0))
        runs = weights.get("Job", weights.get("Pod"))
        before = [weights[kind] for kind in ("ServiceAccount", "Role", "RoleBinding")]
        assert runs is not None
        assert max(before) < runs


def test_hooks_pods_are_never_taken_for_operators():
    (service,) = of_kind("Service", *HOOKS)
    wanted = service["spec"]["selector"].items()
    for one in (
        *of_kind("Pod", *HOOKS),
        *(job["spec"]["template"] for job in of_kind("Job", *HOOKS)),
    ):
        assert not wanted <= one["metadata"]["labels"].items()


def test_hooks_run_without_created_roles():
    kinds = {one["kind"] for one in rendered("rbac.create=false", *HOOKS)}
    assert not {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} & kinds
    assert {"Job", "Pod"} <= kinds


def test_test_of_rights_runs_as_the_operator_itself():
    found = pods("serviceAccount.name=mine")
    assert found["plimsoll-test-rights"]["serviceAccountName"] == "mine"
    assert found["plimsoll-test-rights"]["containers"][0]["args"][-1] == "--check=rights"
    assert found["plimsoll-test"]["serviceAccountName"] == "plimsoll-test"


def test_hook_arguments_are_accepted_by_command(monkeypatch: pytest.MonkeyPatch):
    async def nothing(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(cli, "_preflight", nothing)
    settings = (*NARROW, "preflight.storageClass=fast")
    seen = 0
    for name, pod in pods(*settings).items():
        (container,) = pod["containers"]
        if name == "plimsoll":
            continue
        assert container["command"] == ["python3", "-m", "plimsoll_operator.cli", "preflight"]
        assert "--watch-namespace=shop" in container["args"]
        assert "--set=verification.enabled=true" in container["args"]
        done = CliRunner().invoke(cli.app, ["preflight", *container["args"]])
        assert done.exit_code == 0, (name, done.output)
        seen += 1
    assert seen == 3
    job = pods(*settings)["plimsoll-preflight"]["containers"][0]["args"]
    assert "--storage-class=fast" in job
    assert "--check=priority-and-fairness" in job
    without = pods(*settings, "priorityAndFairness.enabled=false")["plimsoll-preflight"]
    assert "--check=priority-and-fairness" not in without["containers"][0]["args"]


def test_pull_secret_without_a_name_is_refused():
    done = helm("template", "plimsoll", str(CHART), "--kube-version", "1.34.0",
                "--set", "imagePullSecrets[0].nam=x")  # fmt: skip
    assert done.returncode != 0
    assert "imagePullSecrets" in done.stderr


def test_chart_says_which_rights_to_bind_by_hand():
    text = (CHART / "files" / "rights.yaml").read_text()
    assert set(quick_yaml.load(text)) == {"namespaced", "cluster"}
    assert "files/rights.yaml" in (CHART / "values.yaml").read_text()
