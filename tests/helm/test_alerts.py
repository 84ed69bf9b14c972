"""The alerts as the chart renders them: each fires when it should, keeps quiet otherwise, and has a
runbook.

Needs helm, which `dev/node.sh install` makes, and promtool, which `dev/prometheus.sh` fetches with
Debian's Prometheus; without helm these tests say so.
"""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from dev import quick_yaml
from dev.alert_rules import PLAIN_RULES, plain_rules
from tests.documented_commands import fences
from tests.helm.scenes import QUIET, Scene, always, rises, steps
from tests.helm.test_chart import ROOT, helm, of_kind

ENABLED = "metrics.prometheusRule.enabled=true"
RUNBOOKS = ROOT / "docs" / "runbooks"
SCRAPING = ROOT / "docs" / "observability.md"
LIMIT_S = 1_800
"""Of one promtool: seconds of a processor, but this tier gets what others leave of it."""
HERE = Path(__file__).parent
FIRING = sorted(HERE.glob("alerts_*.yaml"))


def groups(*settings: str) -> list[dict[str, Any]]:
    (rule,) = of_kind("PrometheusRule", ENABLED, *settings)
    return list(rule["spec"]["groups"])


def alerts(*settings: str) -> dict[str, dict[str, Any]]:
    rules = (rule for group in groups(*settings) for rule in group["rules"])
    return {rule["alert"]: rule for rule in rules if "alert" in rule}


@cache
def installed_promtool() -> str:
    found = subprocess.run(
        [ROOT / "dev" / "prometheus.sh"], stdout=subprocess.PIPE, text=True, check=True
    )
    return f"{found.stdout.splitlines()[-1]}/promtool"


def promtool(folder: Path, tests: list[dict[str, Any]]) -> str:
    """What it complains of, with the rules as rendered, not as written: templating must not eat
    their own templates.  Each test is given the alerts that it asks for: to evaluate the others for
    hours says nothing of those, and took half a minute of a processor."""
    files = []
    for number, test in enumerate(tests):
        asked = {one["alertname"] for one in test["alert_rule_test"]}
        rules, file = f"rules-{number}.yaml", f"test-{number}.yaml"
        (folder / rules).write_text(quick_yaml.dump({"groups": rules_of(asked)}))
        document = {"rule_files": [rules], "evaluation_interval": "15s", "tests": [test]}
        (folder / file).write_text(quick_yaml.dump(document))
        files.append(file)
    done = subprocess.run(
        [installed_promtool(), "test", "rules", *files],
        cwd=folder, capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    return "" if done.returncode == 0 else done.stdout + done.stderr


def rules_of(asked: set[str]) -> list[dict[str, Any]]:
    """The groups with these alerts and what they ask for; all rules where all are asked for."""
    every = alerts()
    assert asked <= set(every)
    expressions = " ".join(every[name]["expr"] for name in asked)

    def is_needed(rule: dict[str, Any]) -> bool:
        return rule["alert"] in asked if "alert" in rule else rule["record"] in expressions

    if asked == set(every):
        return groups()
    needed = [group | {"rules": [*filter(is_needed, group["rules"])]} for group in groups()]
    return [group for group in needed if group["rules"]]


def annotated(test: dict[str, Any]) -> dict[str, Any]:
    """With the annotations that a test leaves out because they are as the rule has them."""
    rules = alerts()
    for expected in test["alert_rule_test"]:
        written = rules[expected["alertname"]]["annotations"]
        for alert in expected["exp_alerts"]:
            alert["exp_annotations"] = {
                name: filled(text, alert["exp_labels"]) for name, text in written.items()
            } | alert.get("exp_annotations", {})
    return test


def filled(text: str, labels: dict[str, str]) -> str:
    """Labels alone; what else is in a template the test states."""
    return re.sub(r"{{ \$labels\.(\w+) }}", lambda found: str(labels.get(found[1], "")), text)


# --- firing --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("path", FIRING, ids=lambda path: path.stem)
def test_each_alert_fires_only_when_it_should(path: Path, tmp_path: Path):
    tests = [annotated(test) for test in quick_yaml.load(path.read_text())["tests"]]
    assert promtool(tmp_path, tests) == ""


def test_every_alert_is_shown_firing():
    fired = {
        expected["alertname"]
        for path in FIRING
        for test in quick_yaml.load(path.read_text())["tests"]
        for expected in test["alert_rule_test"]
        if expected["exp_alerts"]
    }
    assert fired == set(alerts())


# --- quiet ---------------------------------------------------------------------------------------


def quiet(scene: Scene) -> dict[str, Any]:
    return scene.test() | {
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []}
            for name in alerts()
            for minute in range(9, 60, 2)
        ]
    }


@pytest.mark.slow
@pytest.mark.parametrize("scene", QUIET, ids=lambda scene: scene.__name__)
def test_alerts_stay_quiet_during_requested_work(scene, tmp_path: Path):
    assert promtool(tmp_path, [quiet(scene())]) == ""


@pytest.mark.slow
def test_faulty_scene_is_not_quiet(tmp_path: Path):
    """Else the scenes prove nothing."""
    scene = Scene("an ISR shrinks because a broker died")
    scene.shrinks("a", 2, "fenced", "false", rises(20))
    assert "PlimsollISRShrinking" in promtool(tmp_path, [quiet(scene)])


def told(alert: str, minute: float, **labels: str) -> dict[str, Any]:
    """One alert, at this minute."""
    rule = alerts()[alert]
    every = {"namespace": "kafka", "cluster": "main", **rule["labels"], **labels}
    return {
        "eval_time": f"{int(minute * 60)}s",
        "alertname": alert,
        "exp_alerts": [{"exp_labels": every}],
    }


def test_shrink_seen_by_brokers_fires_in_minute(tmp_path: Path):
    """The API server is away: nothing is committed, and a follower hangs."""
    scene = Scene("a follower hangs while nobody can commit")
    scene.seen(0, 2, "lag", rises(7))
    test = scene.test() | {
        "alert_rule_test": [
            {"eval_time": "10m30s", "alertname": "PlimsollISRShrinking", "exp_alerts": []},
            told("PlimsollISRShrinking", 12, broker="2", cause="lag"),
        ]
    }
    assert promtool(tmp_path, [annotated(test)]) == ""


def test_shrink_seen_twice_is_alerted_once(tmp_path: Path):
    scene = Scene("a broker is evicted under node pressure")
    scene.shrinks("a", 2, "evicted", "false", rises(20))
    for leader in (0, 1):
        scene.seen(leader, 2, "restart", rises(10))
    test = scene.test() | {
        "alert_rule_test": [
            told("PlimsollISRShrinking", minute, broker="2", cause="evicted")
            for minute in (10.5, 12, 14)
        ]
    }
    assert promtool(tmp_path, [annotated(test)]) == ""


@pytest.mark.slow
def test_alerts_of_one_event_page_once(tmp_path: Path):
    """A node with two brokers is lost: six alerts, which the documented route makes one page."""
    (route,) = [one for one in fences(SCRAPING) if one.text.startswith("route:")]
    scene = Scene("a node with two brokers is lost")
    left = [(broker, cause) for broker in "12" for cause in ("fenced", "lag", "restart")]
    for broker, cause in left:
        scene.shrinks("a", int(broker), cause, "false", rises(20))
    each = [told("PlimsollISRShrinking", 12, broker=one, cause=cause) for one, cause in left]
    expected = [alert for one in each for alert in one["exp_alerts"]]
    test = scene.test() | {"alert_rule_test": [each[0] | {"exp_alerts": expected}]}
    assert promtool(tmp_path, [annotated(test)]) == ""
    by = quick_yaml.load(route.text)["route"]["group_by"]
    assert {tuple(one["exp_labels"][name] for name in by) for one in expected} == {
        ("kafka", "main")
    }


def test_node_loss_fires_despite_new_operator(
    tmp_path: Path,
):
    scene = Scene("a node is lost with the operator and a broker")
    for name in list(scene.series):
        if 'instance="a"' in name:
            value = scene.series[name].split("x")[0]
            scene.series[name] = steps((10, value), (0, "stale"))
    scene.away(2, 10, 40)
    scene.shrinks("b", 2, "fenced", "false", rises(20, at=10.5))
    test = scene.test() | {
        "alert_rule_test": [told("PlimsollISRShrinking", 11, broker="2", cause="fenced")]
    }
    assert promtool(tmp_path, [annotated(test)]) == ""


@pytest.mark.slow
def test_steadily_filling_disk_is_alerted_a_day_early(
    tmp_path: Path,
):
    """Over eight hours, which is why it is no scene."""
    where = 'namespace="kafka",cluster="main",broker="{}"'
    free, moving = "plimsoll_broker_disk_free_bytes", "plimsoll_broker_moving_partitions"
    test = {
        "interval": "1m",
        "input_series": [
            {"series": f"{free}{{{where.format(0)}}}", "values": "1000-1x600"},
            {"series": f"{free}{{{where.format(1)}}}", "values": "5000x300 5000-5x300"},
            {"series": f"{moving}{{{where.format(1)}}}", "values": "0x300 3x300"},
            {"series": f"{free}{{{where.format(2)}}}", "values": "9000-1x600"},
        ],
        "alert_rule_test": [
            {"eval_time": "2h", "alertname": "PlimsollDiskFullWithinADay", "exp_alerts": []},
            told("PlimsollDiskFullWithinADay", 480, broker="0"),
        ],
    }
    assert promtool(tmp_path, [annotated(test)]) == ""


# --- as values change them ------------------------------------------------------------------------


def test_alert_can_be_disabled_and_changed():
    assert "PlimsollUnderMinISR" in alerts()
    found = alerts(
        "metrics.prometheusRule.disabled={PlimsollUnderMinISR}",
        "metrics.prometheusRule.overrides.PlimsollAtMinISR.severity=info",
        "metrics.prometheusRule.overrides.PlimsollAtMinISR.for=2h",
        "metrics.prometheusRule.overrides.PlimsollAtMinISR.labels.team=data",
        "metrics.prometheusRule.runbookUrl=https://wiki.example/plimsoll/",
    )
    assert "PlimsollUnderMinISR" not in found
    changed = found["PlimsollAtMinISR"]
    assert changed["labels"] == {"severity": "info", "team": "data"}
    assert changed["for"] == "2h"
    address = changed["annotations"]["runbook_url"]
    assert address == "https://wiki.example/plimsoll/PlimsollAtMinISR.md"


@pytest.mark.parametrize("value", ["disabled={PlimsollNope}", "overrides.PlimsollNope.for=1m"])
def test_name_of_no_alert_is_refused(value: str):
    settings = ["--set", ENABLED, "--set", f"metrics.prometheusRule.{value}"]
    chart = [str(ROOT / "helm/plimsoll"), "--kube-version", "1.34.0"]
    done = helm("template", "plimsoll", *chart, *settings)
    assert done.returncode != 0
    assert "there is no alert PlimsollNope" in done.stderr


def test_recording_rules_accompany_alerts_by_default():
    def names(*settings: str) -> set[str]:
        return {
            rule["record"]
            for group in groups(*settings)
            for rule in group["rules"]
            if "record" in rule
        }

    assert "broker:plimsoll_broker_disk_free:ratio" in names()
    assert names("metrics.prometheusRule.recordingRules=false") == set()


def test_plain_rules_file_is_what_the_chart_renders():
    """For a Prometheus without the operator's CRDs."""
    assert quick_yaml.load(PLAIN_RULES.read_text()) == {"groups": groups()}
    assert PLAIN_RULES.read_text() == plain_rules(), "run: python dev/alert_rules.py --write"


def test_documented_scrape_config_is_valid(tmp_path: Path) -> None:
    """Beside `kubernetes_sd_configs`, which Debian's Prometheus is built without."""
    (found,) = [one for one in fences(SCRAPING) if one.text.startswith("scrape_configs:")]
    without = found.text.replace("kubernetes_sd_configs: [{role: pod}]", "static_configs: []")
    assert without != found.text
    (tmp_path / "prometheus-rules.yaml").write_text(PLAIN_RULES.read_text())
    (tmp_path / "prometheus.yaml").write_text(without)
    done = subprocess.run(
        [installed_promtool(), "check", "config", "prometheus.yaml"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (job,) = quick_yaml.load(found.text)["scrape_configs"]
    made = {one["target_label"] for one in job["relabel_configs"] if "target_label" in one}
    assert (job["honor_labels"], made) == (True, {"namespace", "cluster", "broker"})


def test_every_alert_has_severity_and_meaning():
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in ("info", "warning", "critical"), name
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}, name
        assert rule["annotations"]["description"].endswith("."), name


def test_rules_ask_for_labels_that_are_bounded_alone():
    """Alerts are no per-partition list."""
    for name, rule in alerts().items():
        assert not re.search(r"by \([^)]*partition[^)]*\)", rule["expr"]), name
    assert always(1) == "1x239"


# --- runbooks ------------------------------------------------------------------------------------

PARTS = ("## Meaning", "## Look at", "## Do", "## Do nothing")


def test_alerts_and_runbooks_match():
    assert {path.stem for path in RUNBOOKS.glob("Plimsoll*.md")} == set(alerts())


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("Plimsoll*.md")), ids=lambda path: path.stem)
def test_runbook_has_its_four_parts_in_order(path: Path):
    text = path.read_text()
    assert text.startswith(f"# {path.stem}\n")
    places = [text.index(f"\n{part}\n") for part in PARTS]
    assert places == sorted(places)


def test_runbook_index_lists_each_once():
    text = (RUNBOOKS / "README.md").read_text()
    listed: list[tuple[str, str]] = []
    for section in text.split("\n## ")[1:]:
        severity = section.splitlines()[0].lower()
        rows = re.findall(r"^- \[(\w+)\]\((\w+)\.md\)", section, re.MULTILINE)
        assert [name for name, file in rows if name == file] == [name for name, _ in rows]
        listed += [(name, severity) for name, _ in rows]
    assert len(listed) == len(dict(listed))
    assert dict(listed) == {name: rule["labels"]["severity"] for name, rule in alerts().items()}
