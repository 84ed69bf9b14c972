"""The shell commands that the documents show, and the test behind each.

A fence says what it holds: `sh` is commands, one a line; `console` is commands after `$ ` with
their output; everything else (`yaml`, `text`) is nothing to type.  `RUN_BY` is the one table of
which test runs a command, or its like; `tests/test_docs.py` compares it with the documents.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s+# .*$")
PROMPT = "$ "
KINDS = frozenset({"sh", "console", "yaml", "text"})


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block: what its first line says, and its text."""

    kind: str
    text: str

    @property
    def commands(self) -> list[str]:
        """What a reader types, without comments."""
        lines = self.text.splitlines()
        if self.kind == "console":
            lines = [line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT)]
        elif self.kind != "sh":
            lines = []
        return [command for line in lines if (command := COMMENT.sub("", line).strip())]


def documents() -> list[Path]:
    """Every page that users and contributors read."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def fences(document: Path) -> list[Fence]:
    return [Fence(kind, text) for kind, text in FENCE.findall(document.read_text())]


def commands(document: Path) -> list[str]:
    """In the order in which a reader types them."""
    return [command for fence in fences(document) for command in fence.commands]


DOCUMENTED = "tests/integration/test_documented_commands.py"
INSTALL = "helm upgrade --install plimsoll dist/plimsoll-0.3.0.tgz -n plimsoll-system"
PATCH = "kubectl patch logcluster main -n kafka --type merge -p"
SECURED = '{"name": "secured", "port": 9094, "tls": {}, "authentication": ["ScramSha512"]}'
RUN_BY: dict[str, tuple[str, ...]] = {
    # Taken from the page and run as they stand there.
    f"{DOCUMENTED}::test_local_cluster_commands_match_the_page": (
        "make setup",
        ".venv/bin/plimsoll local --brokers 3 --data /tmp/log -f examples/topic-orders.yaml",
        "kcat -b 127.0.0.1:… -L",
        "seq 1000 | kcat -b 127.0.0.1:… -t orders -P",
        "kcat -b 127.0.0.1:… -t orders -C -o beginning -e",
        "kcat -b 127.0.0.1:… -G readers -X auto.offset.reset=earliest -e orders",
        "export KUBECONFIG=/tmp/log/kubeconfig",
        "kubectl get topics",
        "kubectl get topic orders"
        """ -o jsonpath='{.status.conditions[?(@.type=="Ready")].message}{"\\n"}'""",
        """kubectl patch logcluster main --type merge -p '{"spec": {"brokers": {"count": 4}}}'""",
        "kubectl describe logcluster main | tail -2",
    ),
    f"{DOCUMENTED}::test_commands_of_operations_do_what_the_page_says": (
        "kubectl get plimsoll -n kafka",
        "kubectl get topic orders -n kafka -o yaml",
        "kubectl get logcluster main -n kafka -o yaml",
        "kubectl get events -n kafka",
        "kubectl get reassignment -n kafka",
        "kubectl wait --for=condition=Complete reassignment/orders-off-broker-1"
        " -n kafka --timeout=1h",
        "hash=$(kubectl get rebalance afresh -n kafka -o jsonpath='{.status.plan.hash}')",
        "kubectl patch rebalance afresh -n kafka --type merge"
        ' -p "{\\"spec\\":{\\"approvedPlan\\":\\"$hash\\"}}"',
        "kubectl annotate --overwrite logcluster main -n kafka"
        " plimsoll.dev/acknowledge-deletion=2026-11-22T03:12:45Z",
        'kubectl annotate logcluster main -n kafka plimsoll.dev/restart="$(date -Is)" --overwrite',
        "kubectl get logcluster main -n kafka -o jsonpath='{.status.versions}'",
        "kubectl get logbrokers -n kafka",
    ),
    "tests/e2e/test_inside.py::test_authorities_rotate_despite_dead_broker_and_operator": (
        "kubectl annotate logcluster main -n kafka --overwrite"
        " plimsoll.dev/rotate-client-ca=$(date +%s)",
    ),
    "tests/integration/test_kubectl_plimsoll.py"
    "::test_documented_commands_run_as_a_plugin_of_kubectl": (
        "kubectl plimsoll status -n kafka",
        "kubectl plimsoll topics -n kafka",
        "kubectl plimsoll topic orders -n kafka",
        "kubectl plimsoll why orders 3 -n kafka --since 2h",
        "kubectl plimsoll why orders 0 -n kafka",
        "kubectl plimsoll what-if 1 2 -n kafka",
        "kubectl plimsoll brokers -n kafka --watch",
        "kubectl plimsoll blocked -n kafka",
        "kubectl plimsoll adopt orders -n kafka -o yaml",
        "kubectl plimsoll schedules -n kafka",
        "kubectl plimsoll adopt orders -n kafka | kubectl apply -f -",
        "kubectl plimsoll report -n kafka -f report.tar.gz",
        "kubectl plimsoll restore-metadata -n kafka",
    ),
    "tests/plimsoll_operator/kubectl_plugin/test_restore_metadata.py"
    "::test_point_of_backup_is_asked_for_by_annotation": (
        "kubectl plimsoll restore-metadata -n kafka --from-backup newest",
    ),
    "tests/e2e/test_cli.py": (
        "kubectl plimsoll verify orders -n kafka --records 10000 --allow-existing",
    ),
    "tests/plimsoll_spark/test_local_evidence.py::test_killed_pod_has_a_successor_that_judges": (
        "kubectl plimsoll verify --resume orders-check -n kafka",
    ),
    "tests/integration/test_users.py::test_kafka_tools_leave_objects_users_alone": (
        "plimsoll acl explain main User:orders-writer Write Topic:orders -n kafka",
    ),
    # Run by these tests in other words: without make, through Python, with other values.
    "tests/plimsoll_spark/test_demo_run.py": ("make demo",),
    "tests/e2e/test_demo.py": (
        "make demo-kubernetes",
        "kubectl create namespace kafka",
        "kubectl apply -n kafka -f examples/logcluster.yaml -f examples/topic-orders.yaml",
    ),
    "tests/e2e/test_node.py::test_tools_are_on_the_nodes_path": ('eval "$(dev/node.sh env)"',),
    ".ci/run": ("make test",),
    "tests/helm/test_chart.py::test_brokers_are_scraped_everywhere_with_owner": (
        "helm upgrade plimsoll helm/plimsoll -n plimsoll-system --reuse-values"
        " --set metrics.podMonitor.enabled=true --set metrics.prometheusRule.enabled=true",
    ),
    "tests/helm/test_dashboards.py::test_dashboards_arrive_as_they_were_made": (
        "helm upgrade plimsoll helm/plimsoll -n plimsoll-system --reuse-values"
        " --set metrics.podMonitor.enabled=true --set metrics.dashboards.enabled=true",
    ),
    "tests/dev/test_grafana.py::test_dashboards_match_their_descriptions": (
        ".venv/bin/python -m dev.grafana",
    ),
    "tests/conformance/test_delete_records.py::test_kafkas_own_tools_delete_records_and_say_it": (
        "kafka-get-offsets.sh --bootstrap-server BOOTSTRAP --topic orders --time earliest",
        """echo '{"version": 1, "partitions":"""
        """ [{"topic": "orders", "partition": 7, "offset": 4212}]}' > skip.json""",
        "kafka-delete-records.sh --bootstrap-server BOOTSTRAP --offset-json-file skip.json",
    ),
    "tests/conformance/test_switch_over.py": (
        "plimsoll local --secure --data east --port 9194"
        " -f examples/mirror/orders-east.yaml -f examples/mirror/east-to-west/user-east.yaml",
        "plimsoll local --secure --data west --port 9294"
        " -f examples/mirror/orders-west.yaml -f examples/mirror/east-to-west/user-west.yaml",
        "connect-mirror-maker.sh examples/mirror/east-to-west/mirror.properties --clusters west",
        "kcat -F west/users/admin/librdkafka.conf -C -e -q -o beginning -f '%k %s\\n'"
        " -t mm2-offsets.east.internal",
        "kcat -F east/users/admin/librdkafka.conf -Q -t orders:0:-1",
    ),
    # Installation: the wheel, the names and values in the commands, and a real Kubernetes.
    "tests/integration/test_wheel.py": (
        "make wheel",
        "python3 -m venv ~/plimsoll",
        "~/plimsoll/bin/pip install dist/plimsoll-0.3.0-py3-none-any.whl",
        "export PATH=~/plimsoll/bin:$PATH",
        "plimsoll version",
        "plimsoll local",
        "plimsoll --install-completion",
    ),
    "tests/helm/test_documented_install.py::test_source_commands_are_on_documented_path": (
        "export PATH=$PWD/.venv/bin:$PATH",
    ),
    "tests/dev/test_publish.py::test_documented_targets_hand_over_version_and_registry": (
        "make images VERSION=0.3.0 REGISTRY=registry.example.com/acme",
        "make chart VERSION=0.3.0 REGISTRY=oci://registry.example.com/acme/charts",
        "make images VERSION=0.3.0",
        "make chart VERSION=0.3.0",
    ),
    "tests/helm/test_documented_install.py::test_documented_installation_renders": (
        f"{INSTALL} --create-namespace -f values.yaml --wait",
        f"{INSTALL} --create-namespace --set verification.enabled=true --wait",
        f"{INSTALL} --create-namespace -f values-openshift.yaml --wait",
        f"{INSTALL} --create-namespace -f values-airgapped.yaml --wait",
        f"{INSTALL} -f values.yaml --wait",
    ),
    "tests/helm/test_documented_install.py::test_documented_pull_secret_matches_the_values": (
        "kubectl create namespace plimsoll-system",
        "kubectl create secret docker-registry mirror -n plimsoll-system"
        " --docker-server=registry.inside:5000 --docker-username=NAME --docker-password=PASSWORD",
    ),
    "tests/helm/test_chart.py::test_crds_survive_an_uninstall": (
        "helm uninstall plimsoll -n plimsoll-system",
    ),
    "tests/integration/test_local_secure.py": (
        "plimsoll local --secure --data /tmp/secure",
        "kcat -F /tmp/secure/users/admin/librdkafka.conf -L",
        "kcat -F /login/librdkafka.conf -X ssl.ca.location=/login/ca.crt -L",
    ),
    "tests/integration/test_closing_a_cluster.py": (
        f'{PATCH} \'{{"spec": {{"certificates": {{"internal": {{"mode": "Required"}}}}}}}}\'',
        f'{PATCH} \'{{"spec": {{"listeners": [{{"name": "open", "port": 9092}}, {SECURED}]}}}}\'',
        "kubectl apply -n kafka -f examples/user-admin.yaml -f examples/user-orders-writer.yaml",
        f'{PATCH} \'{{"spec": {{"authorization": {{"mode": "Audit",'
        ' "superUsers": ["User:admin"]}}}\'',
        "kubectl get users -n kafka",
        f'{PATCH} \'{{"spec": {{"authorization": {{"mode": "Enforce"}}}}}}\'',
        f'{PATCH} \'{{"spec": {{"authorization": {{"mode": "Audit"}}}}}}\'',
        f'{PATCH} \'{{"spec": {{"listeners": [{SECURED}]}}}}\'',
        "kubectl wait --for=condition=Secure logcluster/main -n kafka --timeout=5m",
    ),
    "tests/plimsoll_sim/test_command_line.py": (
        "make sim",
        ".venv/bin/python -m plimsoll_sim --seed 7",
        ".venv/bin/python -m plimsoll_sim --seed 7 --events",
        ".venv/bin/python -m plimsoll_sim --seed 7 --shrink",
        ".venv/bin/python -m plimsoll_sim --seeds 1..10000 --jobs 2",
        ".venv/bin/python -m plimsoll_sim --scenario tests/scenarios/S05-joiner-has-all-data.txt",
    ),
    "tests/plimsoll_sim/test_mutants.py": ("make mutants",),
    "tests/plimsoll_operator/preflight/test_command.py::test_file_is_compared_with_limits": (
        "plimsoll preflight --check limits --file cluster.yaml",
    ),
    "tests/e2e/test_installing.py::test_preflight_passes_on_the_node_and_leaves_nothing": (
        "plimsoll preflight --namespace plimsoll-system",
    ),
    "tests/e2e/test_installing.py::test_helm_test_passes_on_the_installed_release": (
        "helm test plimsoll -n plimsoll-system",
    ),
}
"""Test (`path` or `path::function`), or what CI runs, to the commands that it runs."""
