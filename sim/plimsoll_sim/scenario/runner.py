"""Runs a scenario's file and compares the output with the expected output in the file.

`python -m plimsoll_sim --scenario FILE...`; `--rewrite` writes the actual output into the file, so
that a person can read the difference. Source: etcd raft's interaction tests; the files have their
form.
"""

from __future__ import annotations

import difflib
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll_sim.cluster.world import Crash, NotAlive
from plimsoll_sim.engine.loop import Livelock
from plimsoll_sim.oracle.partition_ghost import Violation
from plimsoll_sim.scenario import (
    backup_verbs,
    client_verbs,
    cluster_verbs,
    fault_verbs,
    hour_verbs,
    inside_verbs,
    restart_verbs,
    user_verbs,
)
from plimsoll_sim.scenario.cluster_verbs import Verb
from plimsoll_sim.scenario.script import BadScript, Block, ScriptLine, Words, parse
from plimsoll_sim.scenario.stage import Stage

VERBS: dict[str, Verb] = {
    **cluster_verbs.VERBS,
    **fault_verbs.VERBS,
    **backup_verbs.VERBS,
    **restart_verbs.VERBS,
    **hour_verbs.VERBS,
    **client_verbs.VERBS,
    **inside_verbs.IMPOSTOR_VERBS,
    **inside_verbs.VERBS,
    **user_verbs.VERBS,
    **user_verbs.CERTIFICATE_VERBS,
}


@dataclass(slots=True, kw_only=True)
class Played:
    """Result of running a scenario. `text`: the file with the actual output. `sentence`: the reason
    for an early end, or empty; `outcome`: the kind of that reason."""

    text: str
    outcome: str = "held"
    sentence: str = ""
    events: list[str] = field(default_factory=list)
    steps: int = 0


def play(text: str, *, logs: bool = False, whole: bool = True) -> Played:
    """Run a scenario to its end, or to the first command that fails. Unless `whole`, stop after the
    first block with unexpected output."""
    parts: list[str] = []
    played = Played(text="")
    with Stage(logs=logs) as stage:
        command = ScriptLine(line=0, text="")
        try:
            for item in parse(text):
                if isinstance(item, str):
                    parts.append(item)
                    continue
                printed: list[str] = []
                for command in item.commands:
                    printed += carry_out(stage, command)
                parts.append(item.text(printed))
                if not whole and tuple(printed) != item.expected:
                    break
        except Violation as error:
            played.outcome, played.sentence = "safety", str(error)
        except (NotAlive, Livelock) as error:
            played.outcome, played.sentence = "liveness", str(error)
        except BadScript as error:
            played.outcome, played.sentence = "script", str(error)
        except (Crash, AssertionError) as error:
            played.outcome = "crash"
            played.sentence = "".join(traceback.format_exception(error))
        if played.sentence:
            played.sentence = f"line {command.line}, `{command.text}`: {played.sentence}"
        played.events, played.steps = stage.events, stage.steps
    played.text = "\n\n".join(parts) + "\n"
    return played


def carry_out(stage: Stage, command: ScriptLine) -> list[str]:
    """Carry out one command. Return the lines that it prints."""
    words = Words(command.text)
    verb = VERBS.get(words.verb)
    if verb is None:
        raise BadScript(f"no such verb; there are {', '.join(VERBS)}")
    stage.note(f"line {command.line}: {command.text}")
    return verb(stage, words) or []


def difference(path: Path, text: str) -> str:
    """Return the difference between the file and the output; empty if they agree."""
    written = path.read_text().splitlines(keepends=True)
    came = text.splitlines(keepends=True)
    return "".join(difflib.unified_diff(written, came, f"{path} as written", f"{path} as played"))


def play_files(paths: list[Path], *, rewrite: bool, events: bool) -> int:
    """Run scenario files for the command line. Return exit code 0 if all output is as expected."""
    code = 0
    for path in paths:
        played = play(path.read_text(), logs=events)
        if events:
            print("\n".join(played.events))
        if played.sentence:
            print(f"{path}: {played.outcome}: {played.sentence}")
            code = 13
        elif rewrite:
            path.write_text(played.text)
        elif told := difference(path, played.text):
            print(told)
            code = 13
        if not played.sentence:
            print(f"{path}: {played.steps} steps")
    return code


def usage() -> str:
    """Return the description of every verb."""
    return "\n\n".join(" ".join((verb.__doc__ or "").split()) for verb in VERBS.values())


__all__ = ["VERBS", "Block", "difference", "play", "play_files", "usage"]
