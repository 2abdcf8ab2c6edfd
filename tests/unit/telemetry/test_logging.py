"""The log: its lines, what is left out of them, and what they cost nobody."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from plannerd.telemetry.logging import CallLog, get_logger, printable
from tests.support.services import captured_log


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    with captured_log() as stream:
        yield stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def failed() -> BaseException:
    """An exception with a cause, as it is caught."""
    try:
        try:
            raise KeyError("kumquat")
        except KeyError as cause:
            raise ExceptionGroup("several", [ValueError("tangerine")]) from cause
    except ExceptionGroup as error:
        return error


@pytest.mark.parametrize(
    ("code", "level"),
    [
        ("OK", "info"),
        ("NOT_FOUND", "info"),
        ("CANCELLED", "info"),
        ("UNAVAILABLE", "warning"),
        ("RESOURCE_EXHAUSTED", "warning"),
        ("DEADLINE_EXCEEDED", "warning"),
        ("INTERNAL", "error"),
    ],
)
def test_the_level_of_a_call(log: io.StringIO, code: str, level: str) -> None:
    """What clients do wrong is no warning; what the server can't do is, and a bug is an error."""
    CallLog().call("/a/B", code, 0.0012345)
    [line] = lines(log)
    assert list(line) == ["timestamp", "level", "event", "method", "code", "duration_ms"]
    assert (line["level"], line["code"], line["duration_ms"]) == (level, code, 1.234)


def test_everything_that_is_known_of_a_call(log: io.StringIO) -> None:
    """A failed call has its reason, invocation and correlation id."""
    CallLog().call("/a/B", "INTERNAL", 1.0, reason="INTERNAL", invocation_id="i", correlation_id="c")
    [line] = lines(log)
    assert (line["reason"], line["invocation_id"], line["correlation_id"]) == ("INTERNAL", "i", "c")


def test_exceptions_are_types_and_places(log: io.StringIO) -> None:
    """An exception is written with its causes and members, their types and places, without their messages."""
    CallLog().unexpected("/a/B", "c", failed())
    [line] = lines(log)
    written = line["exception"].splitlines()
    assert [part for part in written if not part.startswith(" ")] == [
        "KeyError",
        "which caused:",
        "ExceptionGroup",
        "of which 1 of 1:",
        "ValueError",
    ]
    assert written[0].endswith(", in failed")


def test_messages_of_exceptions_on_request() -> None:
    """With the setting on, their messages are written too."""
    with captured_log(error_messages=True) as stream:
        CallLog().unexpected("/a/B", "c", failed())
    [line] = lines(stream)
    for part in ("KeyError: 'kumquat'", "ExceptionGroup: several (1 sub-exception)", "ValueError: tangerine"):
        assert part in line["exception"]


def test_exceptions_that_cause_each_other(log: io.StringIO) -> None:
    """A circle of causes ends."""
    one, two = ValueError(), KeyError()
    one.__cause__, two.__cause__ = two, one
    CallLog().unexpected("/a/B", "c", one)
    assert lines(log)[0]["exception"].splitlines() == ["KeyError", "which caused:", "ValueError"]


def test_other_libraries_log_in_the_same_form(log: io.StringIO) -> None:
    """What comes through the standard library's logging is a line like the others, from warnings up."""
    logging.getLogger("asyncio").info("left out")
    try:
        raise ValueError("tangerine")
    except ValueError:
        logging.getLogger("asyncio").exception("task %s failed", 7)
    [line] = lines(log)
    assert (line["event"], line["level"], line["logger"]) == ("task 7 failed", "error", "asyncio")
    assert line["exception"].endswith("ValueError")


def test_levels_are_thresholds() -> None:
    """Lines below the level are not written."""
    with captured_log(level="warning") as stream:
        CallLog().call("/a/B", "OK", 0.0)
        get_logger().info("no")
        get_logger().warning("yes")
    assert [line["event"] for line in lines(stream)] == ["yes"]


def test_text_for_people() -> None:
    """In console format a line is text, also for other libraries."""
    with captured_log(form="console") as stream:
        CallLog().call("/a/B", "OK", 0.0, invocation_id="i\nforged")
        logging.getLogger("asyncio").warning("theirs")
    first, second = stream.getvalue().splitlines()
    assert "/a/B" in first
    assert "theirs" in second


def test_a_line_is_one_line(log: io.StringIO) -> None:
    """Whatever a client calls its invocation, the log has one line for a call."""
    for name in ("a\nb", "\u2028", "\x1b[31m", "\x00", "\U0001f34a", "x" * 10_000):
        CallLog().call("/a/B", "OK", 0.0, invocation_id=name)
    assert len(lines(log)) == 6
    assert log.getvalue().isascii()


@pytest.mark.parametrize(
    ("text", "written"),
    [("order-7", "order-7"), ("naïve 🍊", "naïve 🍊"), ("a\nb", "a\\nb"), ("\x1b[31m", "\\x1b[31m"), ("", "")],
)
def test_printable(text: str, written: str) -> None:
    """Text from outside keeps what can be printed, and shows the rest."""
    assert printable(text) == written


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_log_that_can_not_be_written() -> None:
    """A log that can't be written fails nobody."""
    from plannerd.telemetry.logging import configure

    with captured_log():
        configure(stream=Broken())
        CallLog().call("/a/B", "OK", 0.0)
        logging.getLogger("asyncio").warning("lost")
