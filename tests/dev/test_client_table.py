"""The table of clients in docs/compatibility.md is what the recorded runs say."""

import json

from tests.conformance import results, test_go_suites

RECORDED = json.loads(results.RESULTS.read_text())


def test_document_holds_the_table_of_the_recorded_runs() -> None:
    text = results.DOCUMENT.read_text()
    message = "python -m tests.conformance.results"
    assert results.document(text, RECORDED) == text, message


def test_document_lists_tests_failing_here_only() -> None:
    text = results.DOCUMENT.read_text()
    for name in test_go_suites.FAIL_HERE:
        assert f"`{name.rpartition('/')[2]}`" in text, name


def test_table_names_every_client_and_result() -> None:
    found = results.table(
        {
            "b": {"groups": {"plimsoll": True, "kafka": True}},
            "A": {"groups": {"plimsoll": False, "kafka": True}, "offsets": {"plimsoll": True}},
        }
    )
    first, second = found.splitlines()[2:]
    assert first.startswith("|A|")
    assert first.count("|no|") == 1
    assert first.count("|yes ¹|") == 1
    assert second.count("|yes|") == 1


def test_what_a_run_saw_replaces_that_cell_alone() -> None:
    old = {"a": {"groups": {"plimsoll": False, "kafka": True}}, "b": {"offsets": {"kafka": True}}}
    new = {"a": {"groups": {"plimsoll": True}, "offsets": {"plimsoll": True}}}
    assert results.merged(old, new) == {
        "a": {"groups": {"plimsoll": True, "kafka": True}, "offsets": {"plimsoll": True}},
        "b": {"offsets": {"kafka": True}},
    }
