"""The README's pictures: what is taken from the demo's output and from Spark's report."""

import re
from html import unescape

import pytest
from dev import demo_steps, picture
from tests.dev.test_demo import STALLS, a_run

REPORT = """<style>:root { --ink: #000; }</style>
<h1>Verification v</h1><p class="about">topic t &nbsp; 1 record</p>
<p class="verdict Violated">Violated</p>
<p>1 lost</p>
<h2>Throughput (acks)</h2><p class="about">in <b>steps</b></p><svg viewBox="0"><line id="a"/></svg>
<h2>Ack latency</h2><p class="about">ms</p><svg viewBox="0"><line id="b"/></svg>
<h2>How long writes to each partition stood still (ms)</h2><p class="about">longest</p><svg
 viewBox="0"><rect id="c"/></svg>"""


def words(svg: str) -> str:
    """What a reader of the picture reads."""
    found = " ".join(re.findall(r"<text[^>]*>(.*?)</text>", svg, re.DOTALL))
    return " ".join(unescape(found).split())


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Of a demo whose cluster is scripted."""
    monkeypatch.setattr("dev.kubectl.time.sleep", lambda _: None)
    steps = demo_steps.Steps(7)
    demo_steps.kill_and_judge(a_run(), demo_steps.Story(), steps)
    steps.say(picture.LAST_STEP)
    demo_steps.console.print("make something else")
    return capsys.readouterr().out


def test_demo_picture_shows_table_to_verdict(output: str) -> None:
    shown = picture.end_of(output)
    assert shown.startswith(demo_steps.TABLE_TITLE)
    assert shown.splitlines()[-1].strip().startswith("ok   every ISR full")
    assert "make something else" not in shown
    svg = picture.terminal(shown)
    assert words(svg).count("400 ms") == len(STALLS) + 1
    assert "@font-face" not in svg
    assert "url(" not in svg.replace("url(#", ""), "it fetches something"


def test_demo_that_failed_gives_no_picture() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        picture.end_of("demo failed: no brokers\n")


def test_report_picture_shows_verdict_and_plots() -> None:
    svg = picture.plots(REPORT)
    assert [one for one in "abc" if f'id="{one}"' in svg] == ["a", "c"]
    assert "Violated 1 lost Throughput (acks) in steps How long" in words(svg)
    assert "topic t 1 record" in words(svg)


def test_report_without_a_plot_gives_no_picture() -> None:
    with pytest.raises(ValueError, match="has not the plots"):
        picture.plots(REPORT.replace("Throughput", "Output"))


@pytest.mark.parametrize("name", ["demo.svg", "report.svg"])
def test_readme_pictures_show_a_passed_run(name: str) -> None:
    shown = words((picture.PICTURES / name).read_text())
    assert "Passed" in shown
    if name == "demo.svg":
        assert "0 acked records lost" in shown
        assert all(f"ok {one}" in shown for one in ("verdict", "0 duplicated", "0 out of order"))


def test_readme_picture_matches_todays_demo(output: str) -> None:
    of_today = set(re.findall(r"[a-zA-Z]{4,}", picture.end_of(output)))
    of_then = set(re.findall(r"[a-zA-Z]{4,}", words((picture.PICTURES / "demo.svg").read_text())))
    assert of_today - of_then == set(), "python -m dev.picture makes it again"
