"""`python -m tests.fuzz frames|coverage`: hostile bytes, with figures for docs/fuzzing.md.

`frames --frames N`: spoilt frames at every port of a real local cluster; `--write` puts the result
into the document.  `coverage --seconds N`: what libFuzzer finds in framing, decoders and batch
headers (needs the extra `fuzz`).
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz import cluster
from tests.fuzz.targets import TARGETS

DOCUMENT = Path(__file__).parents[2] / "docs" / "fuzzing.md"
BEGIN, END = "<!-- begin {} -->", "<!-- end {} -->"
MIB = 2**20


def _frames(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as directory:
        report = cluster.run(Path(directory), arguments.frames, arguments.seed)
    outcome, warm, last = report.outcome, report.looks[1], report.looks[-1]
    lines = [
        f"`python -m tests.fuzz frames --frames {arguments.frames} --seed {arguments.seed}`, "
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {report.seconds:.0f} s: "
        f"{outcome.looked_at:,} frames looked at ({sum(outcome.sent.values()):,} sent), "
        f"{'a' if report.trouble else 'no'} failure.",
        "",
        "| port | frames answered | connections closed at a frame |",
        "|---|---|---|",
        *(
            f"| {name} | {outcome.answered.get(name, 0):,} | {outcome.closed.get(name, 0):,} |"
            for name in sorted(outcome.sent)
        ),
        "",
        "| process | memory after a tenth, MiB | at the end | descriptors before | at the end |",
        "|---|---|---|---|---|",
        *(
            f"| {'controller' if name == 'controller' else 'broker ' + name} "
            f"| {warm.rss[name] / MIB:.0f} | {last.rss[name] / MIB:.0f} "
            f"| {report.looks[0].files[name]} | {last.files[name]} |"
            for name in sorted(last.rss)
        ),
    ]
    print("\n".join(lines))
    for trouble in report.trouble:
        print("TROUBLE", trouble)
    if arguments.write and not report.trouble:
        _write("frames", lines[0])
    return 1 if report.trouble else 0


def _coverage(arguments: argparse.Namespace) -> int:
    """Each target in a process of its own: libFuzzer never returns."""
    failed = False
    print("| target | inputs | branches reached | without a finding |")
    for name in TARGETS:
        with tempfile.TemporaryDirectory() as corpus:
            command = [
                sys.executable, "-m", "tests.fuzz.guided", name, corpus,
                f"-max_total_time={arguments.seconds}", "-max_len=4096", "-rss_limit_mb=1024",
                f"-seed={arguments.seed}", "-print_final_stats=1", "-timeout=10",
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = done.stderr.splitlines()
        runs = next((w.split()[-1] for w in said if "number_of_executed_units" in w), "?")
        covered = next((w for w in reversed(said) if " cov: " in w), "").partition(" cov: ")[2]
        found = "no" if done.returncode else "yes"
        print(f"| {name} | {runs} | {covered.split(' ')[0]} | {found} |", flush=True)
        if done.returncode:
            failed = True
            print(done.stdout[-4000:], done.stderr[-4000:])
    if arguments.write and not failed:
        said_of_all = (
            f"`python -m tests.fuzz coverage --seconds {arguments.seconds}`, "
            f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}: no finding."
        )
        _write("coverage", said_of_all)
    return 1 if failed else 0


def _write(part: str, text: str) -> None:
    whole = DOCUMENT.read_text()
    begin, end = BEGIN.format(part), END.format(part)
    before, _, rest = whole.partition(begin)
    _, _, after = rest.partition(end)
    DOCUMENT.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    kinds = parser.add_subparsers(required=True)
    frames = kinds.add_parser("frames")
    frames.add_argument("--frames", type=int, default=100_000)
    frames.set_defaults(run=_frames)
    coverage = kinds.add_parser("coverage")
    coverage.add_argument("--seconds", type=int, default=60)
    coverage.set_defaults(run=_coverage)
    for each in (frames, coverage):
        each.add_argument("--seed", type=int, default=1)
        each.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    result: int = arguments.run(arguments)
    return result


if __name__ == "__main__":
    sys.exit(main())
