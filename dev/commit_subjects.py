"""Checks the subjects of new commits against the rules in CONTRIBUTING.md.

    python -m dev.commit_subjects [REPOSITORY]

Commits up to BASE are older than the rules and not checked. If BASE is not in the history (an
archive, a shallow clone), nothing is checked.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASE = "66adf7defb2121eeff1cb132d8204ff65b8ff515"
SUBJECT_MAX = 72


def fault(subject: str) -> str | None:
    """Return the rule that a commit's subject breaks, as text, or None if it breaks none."""
    if len(subject) > SUBJECT_MAX:
        return f"{len(subject)} characters, at most {SUBJECT_MAX}"
    if subject.endswith("."):
        return "ends with a full stop"
    if not subject[:1].isupper():
        return "does not begin with a capital letter"
    return None


def new_subjects(repository: Path, base: str = BASE) -> list[tuple[str, str]]:
    """Return the abbreviated hash and subject of each commit after base, merges excluded."""
    git = ["git", "-C", str(repository)]
    known = subprocess.run(
        [*git, "merge-base", "--is-ancestor", base, "HEAD"], capture_output=True, check=False
    )
    if known.returncode != 0:
        return []
    log = subprocess.run(
        [*git, "log", "--no-merges", "--format=%h%x09%s", f"{base}..HEAD"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    pairs = [line.partition("\t") for line in log.splitlines()]
    return [(commit, subject) for commit, _, subject in pairs]


def main() -> int:
    repository = Path(sys.argv[1]) if sys.argv[1:] else ROOT
    faults = [
        f"{commit} {subject!r}: {why}"
        for commit, subject in new_subjects(repository)
        if (why := fault(subject))
    ]
    for line in faults:
        print(line, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
