"""Writes the chart's alerts and recording rules as a plain rules file, for a Prometheus without the
Prometheus operator.

    python dev/alert_rules.py            # print them
    python dev/alert_rules.py --write    # into helm/prometheus-rules.yaml

A test compares the file with what the chart renders with its default values.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "helm" / "plimsoll"
PLAIN_RULES = ROOT / "helm" / "prometheus-rules.yaml"
HEAD = """\
# The chart's alerts and recording rules, for a Prometheus without the CRD PrometheusRule: name this
# file in `rule_files`.  Made by `python dev/alert_rules.py --write` of helm/plimsoll/files.
"""


def plain_rules() -> str:
    """Return the text of the rules file, as the chart renders the rules with its default values."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    base = values["metrics"]["prometheusRule"]["runbookUrl"].rstrip("/")
    groups = [*_groups("alerts.yaml"), *_groups("recording.yaml")]
    for rule in (rule for group in groups for rule in group["rules"] if "alert" in rule):
        rule["annotations"]["runbook_url"] = f"{base}/{rule['alert']}.md"
    return HEAD + yaml.safe_dump({"groups": groups}, sort_keys=False, width=120)


def _groups(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load((CHART / "files" / name).read_text())["groups"])


def main() -> None:
    if sys.argv[1:] == ["--write"]:
        PLAIN_RULES.write_text(plain_rules())
    else:
        sys.stdout.write(plain_rules())


if __name__ == "__main__":
    main()
