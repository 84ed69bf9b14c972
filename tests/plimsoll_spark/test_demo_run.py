"""`make demo`, whole: three brokers, Spark, a SIGKILL, and the verdict."""

from pathlib import Path

import pytest
from dev import demo
from dev.demo_steps import Story, console
from dev.kubectl import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

DIRECTORY = ROOT / "build" / "demo-in-a-test"
"""Not the demo's own: a cluster that somebody kept there goes on running."""


def test_demo_run_survives_a_killed_broker(
    spark_jars: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, story = demo.LocalDemo(DIRECTORY, keep=False), Story()
    console.width = 110  # pytest's capture is no terminal either
    try:
        demo.run(cluster, story, keep=False)
    finally:
        cluster.stop()
    said = capsys.readouterr().out
    # 2: only later than it may be.  tests/dev/test_demo.py tests how lateness is judged.
    assert story.exit_code in (0, 2), said
    assert "ok   verdict Passed" in said
    assert "ok   audit Passed" in said
    assert "acked 300,000" in said
    assert "<svg" in (DIRECTORY / "report.html").read_text()
