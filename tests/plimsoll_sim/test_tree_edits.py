"""An edit is found by names and by a pattern of syntax, and has exactly one place."""

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

from plimsoll_sim.mutants.mutant import Mutant, become, compiled, read
from plimsoll_sim.mutants.tree_edits import Edit, Sources, Stale, apply

ROOT = Path("/product")
BROKER = '''
"""A module."""
LIMIT = 7

class Log:
    @property
    def end(self):
        return self._end

    @end.setter
    def end(self, new):
        if new < self._end and self.fixed:
            raise ValueError
        self._end = new

def judge(a, b, *, strict=False):
    # A comment.
    if a > b or (
        strict
        and a == b
    ):
        note("too large", a)
        return False
    return True
'''


def sources(**texts: str) -> Sources:
    return Sources({ROOT / f"{name}.py": text for name, text in texts.items()}, ROOT)


def edited(target: str, pattern: str, replacement: str, text: str = BROKER) -> str:
    (module,) = apply([Edit(target, pattern, replacement)], sources(broker=text)).values()
    compiled(module)
    return ast.unparse(module.tree)


def expected(old: str, new: str) -> str:
    assert BROKER.count(old) == 1
    return ast.unparse(ast.parse(BROKER.replace(old, new)))


@pytest.mark.parametrize(
    ("target", "pattern", "replacement", "old", "new"),
    [
        ("judge", "a == b", "True", "a == b", "True"),
        ("judge", "a > b or ...", "...", "a > b", "a > b"),
        (
            "judge",
            "strict and ...",
            "not (...)",
            "strict\n        and a == b",
            "not (strict and a == b)",
        ),
        ("judge", 'note("too large", a)', "pass", 'note("too large", a)', "pass"),
        ("judge", "note(...)", "other(...)", 'note("too large", a)', 'other(note("too large", a))'),
        ("judge", "return True", "a = b; ...", "    return True", "    a = b\n    return True"),
        ("Log.end", "new < self._end", "False", "new < self._end", "False"),
        ("Log.end", "return ...", "return 0", "return self._end", "return 0"),
        ("LIMIT", "7", "8", "LIMIT = 7", "LIMIT = 8"),
        ("broker.LIMIT", "7", "8", "LIMIT = 7", "LIMIT = 8"),
    ],
)
def test_edit_replaces_the_code_that_matches(
    target: str, pattern: str, replacement: str, old: str, new: str
) -> None:
    assert edited(target, pattern, replacement) == expected(old, new)


def test_pattern_with_statements_matches_their_sequence() -> None:
    result = edited("judge", "if a > b or ...: ...", "return None")
    assert ast.unparse(ast.parse("def f():\n    return None\n    return True"))[10:] in result


def test_empty_pattern_replaces_the_whole_body() -> None:
    assert edited("judge", "", "return True").endswith("strict=False):\n    return True")


def test_edits_of_one_function_are_all_applied() -> None:
    edits = [Edit("judge", "a > b", "False"), Edit("judge", "a == b", "True")]
    (module,) = apply(edits, sources(broker=BROKER)).values()
    assert "False or (strict and True)" in ast.unparse(module.tree)


def test_reformatted_and_moved_code_is_found() -> None:
    moved = BROKER.replace(
        "a > b or (\n        strict\n        and a == b\n    )", "a>b or strict\\\n and a==b"
    )
    assert moved != BROKER
    apply([Edit("judge", "a == b", "False")], sources(broker="", elsewhere=moved))


@pytest.mark.parametrize(
    ("target", "pattern", "sentence"),
    [
        ("judge", "a < b", "0 places"),
        ("decide", "a > b", "0 places"),
        ("judge", "a", "places"),
        ("Log.end", "self._end", "3 places"),
        ("Other.end", "new < self._end", "0 places"),
    ],
)
def test_edit_without_exactly_one_place_is_stale(target: str, pattern: str, sentence: str) -> None:
    with pytest.raises(Stale, match=sentence):
        edited(target, pattern, "None")


def test_ambiguous_name_needs_pattern_or_module() -> None:
    both = sources(broker=BROKER, other="def judge(a, b):\n    return a > b\n")
    apply([Edit("judge", "a == b", "True")], both)
    with pytest.raises(Stale, match="2 places"):
        apply([Edit("judge", "a > b", "True")], both)
    apply([Edit("other.judge", "a > b", "True")], both)


@pytest.mark.parametrize("import_first", [True, False])
def test_process_becomes_the_mutant(
    import_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"module_of_a_mutant_{import_first}".lower()
    path = tmp_path / f"{name}.py"
    path.write_text(BROKER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    importlib.invalidate_caches()
    table = tmp_path / "mutants.txt"
    table.write_text(
        "# Two edits.\n\nmutant: S01, profile moves\n  A rule.\n  rare: a reason\n"
        "  in judge: a > b -> False\n  in judge: return True\n      -> return 5\n"
    )
    (mutant,) = read(table)
    assert (mutant.name, mutant.noticed_by, mutant.profile) == ("mutant", ("S01",), "moves")
    assert (mutant.rule, mutant.rare) == ("A rule.", "a reason")
    text = Sources({path: BROKER}, tmp_path)
    if import_first:
        judge = importlib.import_module(name).judge
        become(mutant, text)
    else:
        become(mutant, text)
        judge = importlib.import_module(name).judge
    assert judge(2, 1) == 5


def test_variable_of_an_imported_module_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "module_with_a_variable.py"
    path.write_text(BROKER)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module(path.stem)
    mutant = Mutant(name="late", rule="", edits=(Edit("LIMIT", "7", "8"),))
    with pytest.raises(Stale, match="late: LIMIT was evaluated"):
        become(mutant, Sources({path: BROKER}, tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "mutant\n  A rule.\n  in f: a -> b\n",
        "mutant: S01\n  A rule.\n",
        "mutant: S01\n  in f: a -> b\n",
    ],
)
def test_incomplete_entry_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mutants.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match="not a mutant"):
        read(path)
