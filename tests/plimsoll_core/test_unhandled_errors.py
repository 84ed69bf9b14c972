"""What reaches a loop's exception handler: a bug, an error of the environment, or a library's."""

from __future__ import annotations

import asyncio

import pytest

from plimsoll_core import unhandled_errors
from plimsoll_core.unhandled_errors import ends_process


def raised(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


@pytest.mark.parametrize("error", [AssertionError("a bug"), KeyError("x"), ValueError("y")])
def test_bug_ends_the_process(error: Exception) -> None:
    assert ends_process({"message": "m", "exception": raised(error)}) is error


@pytest.mark.parametrize(
    "context",
    [
        {"message": "Task was destroyed but it is pending!"},
        {"message": "m", "exception": ConnectionResetError("gone")},
        {"message": "m", "exception": TimeoutError()},
        {"message": "m", "exception": asyncio.IncompleteReadError(b"", 4)},
        {"message": "m", "exception": asyncio.CancelledError()},
        {"message": "m", "exception": AssertionError("a bug"), "costs": "one connection"},
    ],
)
def test_ends_process_ignores_network_and_handled_errors(
    context: dict[str, object],
) -> None:
    assert ends_process(context) is None


def test_library_errors_end_process_only_through_our_code() -> None:
    theirs = raised(KeyError("in a library"))
    assert ends_process({"exception": theirs}, ours="plimsoll_") is None
    with pytest.raises(AttributeError) as caught:
        unhandled_errors.ends_process(None)  # type: ignore[arg-type]  # a bug of ours
    assert ends_process({"exception": caught.value}, ours="plimsoll_") is caught.value
