"""Kafka's error codes stand in one enum, under Kafka's names and numbers."""

import ast
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from plimsoll_core.errors import Code, Reason

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "core/plimsoll_core/errors.py"
PRODUCT = sorted(
    path
    for folder in ("core", "broker_image", "operator", "sim")
    for path in (ROOT / folder).rglob("*.py")
    if path != HOME
)


@pytest.mark.parametrize("code", Code, ids=lambda code: code.name)
def test_error_code_matches_kafka_name_and_number(code: Code):
    assert ErrorCode(int(code)).name.upper() == code.name


def test_refusal_reasons_have_distinct_kafka_codes():
    assert {reason.code for reason in Reason} <= {int(code) for code in Code}
    assert len({reason.value for reason in Reason}) == len(Reason.__members__)


@pytest.mark.slow
def test_error_codes_are_stated_in_one_module():
    stated = {
        str(path.relative_to(ROOT))
        for path in PRODUCT
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
        and (code := Code.__members__.get(target.id.lstrip("_")))
        and node.value.value == code
    }
    assert not stated
