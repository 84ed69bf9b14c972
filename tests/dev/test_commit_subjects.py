"""Subjects of commits: the rules of CONTRIBUTING.md, and histories that cannot be checked."""

import subprocess
from pathlib import Path

import pytest
from dev.commit_subjects import SUBJECT_MAX, fault, new_subjects

AUTHOR = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")


def git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *AUTHOR, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(repository: Path, subject: str) -> str:
    git(repository, "commit", "-q", "--allow-empty", "-m", subject)
    return git(repository, "rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("A" * (SUBJECT_MAX + 1), "73 characters"),
        ("Fence a broker at once.", "full stop"),
        ("fence a broker at once", "capital"),
        ("", "capital"),
    ],
)
def test_subject_that_breaks_a_rule_is_named(subject: str, why: str) -> None:
    assert why in (fault(subject) or "")


def test_subject_within_the_rules_passes() -> None:
    assert fault("A" * SUBJECT_MAX) is None


def test_commits_after_the_base_are_checked(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    commit(tmp_path, "older than the rules: anything.")
    base = commit(tmp_path, "the base.")
    commit(tmp_path, "Fence a broker at once")
    commit(tmp_path, "fence it again.")
    subjects = [subject for _, subject in new_subjects(tmp_path, base)]
    assert subjects == ["fence it again.", "Fence a broker at once"]


def test_shallow_clone_is_not_checked(tmp_path: Path) -> None:
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    git(origin, "init", "-q")
    base = commit(origin, "the base.")
    commit(origin, "fence it.")
    git(tmp_path, "clone", "-q", "--depth", "1", origin.as_uri(), str(clone))
    assert new_subjects(clone, base) == []


def test_folder_without_history_is_not_checked(tmp_path: Path) -> None:
    assert new_subjects(tmp_path) == []
