"""Makes the README's pictures from a run of `make demo`: its output and Spark's report.

`python -m dev.picture` runs the demo and writes `docs/pictures/demo.svg`, the end of its output,
and `docs/pictures/report.svg`, the head and two plots of `build/demo/report.html`. Nothing in them
is drawn by hand. If the demo fails, the pictures stay unchanged.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import escape, unescape
from io import StringIO

from dev.demo import DIRECTORY
from dev.demo_steps import TABLE_TITLE
from dev.kubectl import ROOT
from rich.console import Console
from rich.text import Text

PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 110
"""Width of the demo's output in characters, if it is not a terminal."""
DEMO_S = 900
LAST_STEP = "what to type next:"
SHOWN = ("Throughput", "How long writes to each partition stood still")
"""Plots of the report that show a stall of writes, by the beginnings of their headings."""
WIDTH, MARGIN, PLOT_HEIGHT, HEAD_HEIGHT = 900, 20, 220, 110
"""Sizes in pixels. A plot is 860 pixels wide (`plimsoll_spark.svg`)."""
PLOT = re.compile(r'<h2>(.*?)</h2><p class="about">(.*?)</p><svg\b[^>]*>(.*?)</svg>', re.DOTALL)
FONTS_FROM_THE_NET = re.compile(r"@font-face \{.*?\}", re.DOTALL)


def end_of(output: str) -> str:
    """Return the demo's output from its table to its verdict; `output` has its colours (ANSI).
    Raises ValueError if there is no such end: the demo failed."""
    lines = output.splitlines()
    (first,) = [n for n, line in enumerate(lines) if TABLE_TITLE in line]
    (last,) = [n for n, line in enumerate(lines) if LAST_STEP in line]
    return "\n".join(line.rstrip() for line in lines[first:last])


def terminal(output: str) -> str:
    """Return an SVG image of a terminal that shows `output`. It fetches nothing, not even its
    font."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(output))
    return FONTS_FROM_THE_NET.sub("", console.export_svg(title="make demo"))


def plots(report: str) -> str:
    """Return an SVG image of the report's head and of its plots in `SHOWN`, in the report's own
    style. Raises ValueError if the report has no such parts."""
    (style,) = re.findall(r"<style>(.*?)</style>", report, re.DOTALL)
    head = [_found(rf"<{tag}[^>]*>(.*?)</", report) for tag in ("h1", 'p class="about"')]
    verdict = _found(r'<p class="verdict[^>]*>(.*?)</p>', report)
    sentence = _found(r'<p class="verdict[^>]*>.*?</p>\s*<p>(.*?)</p>', report)
    shown = [plot for plot in PLOT.findall(report) if plot[0].startswith(SHOWN)]
    if len(shown) != len(SHOWN):
        raise ValueError(f"the report has not the plots {SHOWN}")
    height = HEAD_HEIGHT + len(shown) * (PLOT_HEIGHT + 60)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
        f"<style>{style} svg {{ width: {WIDTH}px; height: {height}px; }}"
        " svg text.head { font-size: 19px; fill: var(--ink); }"
        " svg text.part { font-size: 15px; fill: var(--ink); }"
        " svg text.about { font-size: 11px; }"
        " svg text.Passed { font-size: 17px; fill: var(--good); }</style>",
        f'<rect width="{WIDTH}" height="{height}" style="fill: var(--page)"/>',
        _text(30, "head", head[0]),
        _text(52, "about", head[1]),
        _text(80, verdict, verdict),
        _text(100, "about", sentence),
    ]
    for n, (heading, about, drawn) in enumerate(shown):
        top = HEAD_HEIGHT + n * (PLOT_HEIGHT + 60)
        parts += [
            _text(top + 24, "part", heading),
            _text(top + 44, "about", about),
            f'<g transform="translate({MARGIN} {top + 52})">{drawn}</g>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.DOTALL)
    if found is None:
        raise ValueError(f"the report has no {pattern}")
    return found[1]


def _text(y: int, style: str, content: str) -> str:
    """Return one line of text at height `y` as SVG. `content`: HTML, of which only the text is
    used."""
    words = unescape(re.sub(r"<[^>]*>", "", content)).replace("\xa0", " ")
    return f'<text x="{MARGIN}" y="{y}" class="{escape(style)}">{escape(words)}</text>'


def main() -> int:
    done = subprocess.run(
        [sys.executable, "-m", "dev.demo"],
        cwd=ROOT,
        env={**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color"},
        capture_output=True,
        text=True,
        timeout=DEMO_S,
        check=False,
    )
    print(done.stdout)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return done.returncode
    PICTURES.mkdir(exist_ok=True)
    drawn = {
        "demo.svg": terminal(end_of(done.stdout)),
        "report.svg": plots((DIRECTORY / "report.html").read_text()),
    }
    for name, svg in drawn.items():
        path = PICTURES / name
        path.write_text(svg)
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
