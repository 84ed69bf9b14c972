"""The release before this one, from which upgrades are tried."""

import subprocess

from dev.tier_lanes import ROOT

from plimsoll_core.release import RELEASE


def git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def test_previous_release_is_newest_tag_or_stated() -> None:
    stated = (ROOT / "dev" / "releases.txt").read_text().splitlines()
    ((name, commit),) = [line.split() for line in stated if not line.startswith("#")]
    assert git("rev-parse", "--verify", f"{commit}^{{commit}}") == commit
    if tag := git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD"):
        assert (tag, git("rev-parse", f"{tag}^{{commit}}")) == (f"v{name}", commit)
    release = git("show", f"{commit}:core/plimsoll_core/release.py")
    before = release.partition('RELEASE = "')[2].partition('"')[0]
    assert name.startswith(f"{before}.")
    assert before != RELEASE
