"""What a scenario's text may say, and how it fails when it says something else."""

import pytest

from plimsoll_sim.mutants.hunt import SCENARIOS
from plimsoll_sim.scenario.runner import VERBS, play
from plimsoll_sim.scenario.script import Block, microseconds, parse

CLUSTER = "cluster brokers=1\ntopic orders replicas=1 min_isr=1"


def test_prose_and_blocks_are_told_apart() -> None:
    prose, block, silent = parse("# A.\n# B.\n\n\nrun 1s\n# why\nshow\n----\none\ntwo\n\nrun 2s\n")
    assert prose == "# A.\n# B."
    assert isinstance(block, Block)
    assert [(one.line, one.text) for one in block.commands] == [(5, "run 1s"), (7, "show")]
    assert block.expected == ("one", "two")
    assert block.text(["other"]) == "run 1s\n# why\nshow\n----\nother"
    assert isinstance(silent, Block)
    assert silent.text([]) == "run 2s"


def test_scenario_runner_writes_actual_output_below_the_commands() -> None:
    played = play(f"{CLUSTER}\nproduce a\nshow logs\n----\nsomething else\n")
    assert played.outcome == "held"
    assert played.text == (
        f"{CLUSTER}\nproduce a\nshow logs\n----\n"
        "a: acknowledged at 0\n1  leader    hw 1  end 1   LE0 a@0 |\n"
    )


def test_mutant_scenario_ends_at_first_difference() -> None:
    text = f"{CLUSTER}\nproduce a\nshow logs\n----\nsomething else\n\nno such verb\n"
    assert play(text).outcome == "script"
    assert play(text, whole=False).outcome == "held"
    assert play(f"{CLUSTER}\n\nno such verb\n", whole=False).outcome == "script"


def test_scenario_files_are_formatted() -> None:
    """So a block that prints what is written makes no difference of its file."""
    for path in SCENARIOS.glob("*.txt"):
        items = parse(path.read_text())
        parts = [one if isinstance(one, str) else one.text(one.expected) for one in items]
        assert "\n\n".join(parts) + "\n" == path.read_text(), path.name


@pytest.mark.parametrize(
    ("text", "outcome", "sentence"),
    [
        ("dance", "script", "no such verb"),
        ("kill 1", "script", "begin with `cluster`"),
        (f"{CLUSTER}\nkill 2", "script", "there is no broker 2"),
        (f"{CLUSTER}\nkill 1 slowly=yes", "script", "kill does not know slowly=yes"),
        (f"{CLUSTER}\nrun fast", "script", "fast is no time"),
        (f"{CLUSTER}\nuntil liked=1", "script", "compares nothing that is known"),
        (f"{CLUSTER}\nexpect leader=2", "script", "it is not so: leader=1"),
        (f"{CLUSTER}\nproduce a a", "script", "a was sent before"),
        (f"{CLUSTER}\nuntil leader=2 within=2s", "liveness", "not within 2 s: leader=2; it is"),
    ],
)
def test_wrong_scenario_reports_the_line_and_the_reason(
    text: str, outcome: str, sentence: str
) -> None:
    played = play(text)
    assert played.outcome == outcome
    assert sentence in played.sentence
    last = text.splitlines()[-1]
    assert played.sentence.startswith(f"line {len(text.splitlines())}, `{last}`: ")


def test_scenario_verbs_all_document_their_use() -> None:
    for name, verb in VERBS.items():
        assert (verb.__doc__ or "").startswith(name), name


def test_times_have_units() -> None:
    assert microseconds("3s") == 3_000_000
    assert microseconds("200ms") == 200_000
