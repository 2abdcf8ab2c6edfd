"""Errors as statuses: the table, the details and their bounds."""

import asyncio
import re
from pathlib import Path

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from plannerd.errors import PlannerdError, Reason, Violation, invalid
from plannerd.services.failures import (
    CODES,
    CORRELATION_ID,
    DETAILS_BYTES,
    INTERNAL_TEXT,
    TEXT_BYTES,
    TRUNCATED,
    Failure,
    cut_text,
    failure_of,
)
from plannerd.transport.status import DOMAIN, WireStatus, status_of
from plannerd_protos.planner.v1 import errors_pb2

ERRORS_PROTO = Path(__file__).resolve().parents[3] / "protos" / "planner" / "v1" / "errors.proto"
PREFIX = "ERROR_REASON_"

NAMES = [
    value.name.removeprefix(PREFIX)
    for value in errors_pb2.ErrorReason.DESCRIPTOR.values
    if value.name != "ERROR_REASON_UNSPECIFIED"
]


def documented_codes() -> dict[str, str]:
    """The code that the comment of each reason starts with."""
    codes = {}
    comment: list[str] = []
    for line in ERRORS_PROTO.read_text("utf-8").splitlines():
        text = line.strip()
        if text.startswith("//"):
            comment.append(text.removeprefix("//").strip())
        else:
            if match := re.match(rf"{PREFIX}(\w+) = \d+;", text):
                codes[match[1]] = " ".join(comment).split(".")[0]
            comment = []
    return codes


def details(status: WireStatus) -> tuple[ErrorInfo, BadRequest | None, RetryInfo | None]:
    [(key, raw)] = status.metadata
    assert key == "grpc-status-details-bin"
    rich = Status.FromString(raw)
    assert (rich.code, rich.message) == (status.code.value[0], status.text)
    found = {any_.type_url.rpartition(".")[2]: any_.value for any_ in rich.details}
    return (
        ErrorInfo.FromString(found["ErrorInfo"]),
        BadRequest.FromString(found["BadRequest"]) if "BadRequest" in found else None,
        RetryInfo.FromString(found["RetryInfo"]) if "RetryInfo" in found else None,
    )


def travelling(text: str) -> int:
    """The length of a status text once it is percent-encoded."""
    return sum(1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in text.encode())


def test_reasons_and_enum_are_the_same() -> None:
    """Each reason of the server is in the contract's enum, and each value of the enum is a reason."""
    assert sorted(NAMES) == sorted(reason.value for reason in Reason)


@pytest.mark.parametrize("name", NAMES)
def test_each_reason_has_its_documented_code(name: str) -> None:
    """The one code of a reason is the code that the contract's comment names first."""
    assert CODES[Reason(name)].name == documented_codes()[name]


def test_the_table_has_nothing_else() -> None:
    """Every reason is in the table, and OK and UNKNOWN are no codes of errors."""
    assert set(CODES) == set(Reason)
    assert not {grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN} & set(CODES.values())


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.INTERNAL])
def test_a_domain_error_keeps_what_it_says(reason: Reason) -> None:
    """A domain error reaches the client with its reason, text, metadata and waiting time."""
    error = PlannerdError(reason, "what is wrong", metadata={"id": "7"}, retry_after=1.5)
    status = status_of(failure_of(error, None))
    info, bad, retry = details(status)
    assert (status.code, status.text) == (CODES[reason], "what is wrong")
    assert (info.domain, info.reason, dict(info.metadata)) == (DOMAIN, reason.value, {"id": "7"})
    assert bad is None
    assert retry is not None
    assert retry.retry_delay.ToMilliseconds() == 1500


def test_violations_become_a_bad_request() -> None:
    """Bad fields are listed with their paths, and no RetryInfo is there unless waiting helps."""
    info, bad, retry = details(status_of(failure_of(invalid("agents[2].name", "must not be blank"), None)))
    assert info.reason == "INVALID_REQUEST"
    assert bad is not None
    assert [(entry.field, entry.description) for entry in bad.field_violations] == [
        ("agents[2].name", "must not be blank")
    ]
    assert retry is None


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("secret"),
        KeyError("secret"),
        TimeoutError("secret"),
        asyncio.CancelledError("secret"),
        PlannerdError(Reason.INTERNAL, "secret", metadata={"secret": "secret"}),
        ExceptionGroup("secret", [PlannerdError(Reason.DRAINING, "secret")]),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("remaining", [None, 10.0])
def test_anything_else_is_internal(error: BaseException, remaining: float | None) -> None:
    """What is no domain error becomes INTERNAL with a fixed text and a new correlation id, and nothing else."""
    failure = failure_of(error, remaining)
    status = status_of(failure)
    info, bad, retry = details(status)
    assert (status.code, status.text, info.reason) == (grpc.StatusCode.INTERNAL, INTERNAL_TEXT, "INTERNAL")
    assert dict(info.metadata) == {CORRELATION_ID: failure.correlation_id}
    assert (bad, retry) == (None, None)
    assert failure.correlation_id != failure_of(error, remaining).correlation_id
    assert b"secret" not in status.metadata[0][1]


@pytest.mark.parametrize("error", [TimeoutError(), asyncio.CancelledError()])
def test_a_time_out_after_the_deadline_is_the_deadline(error: BaseException) -> None:
    """A time-out or cancellation counts as the deadline's if the call's own deadline has passed."""
    failure = failure_of(error, 0.0)
    assert (failure.reason, failure.correlation_id) == (Reason.DEADLINE_EXCEEDED, "")


def test_a_bug_after_the_deadline_is_still_a_bug() -> None:
    """Other errors are internal even if the deadline has passed meanwhile."""
    assert failure_of(RuntimeError(), 0.0).reason is Reason.INTERNAL


@given(st.text(max_size=3000), st.integers(3, TEXT_BYTES))
def test_texts_are_cut_to_their_bound(text: str, limit: int) -> None:
    """A text fits its bound once it is encoded, and is a beginning of the original unless it fitted anyway."""
    cut = cut_text(text, limit)
    assert travelling(cut) <= limit
    if travelling(text) <= limit:
        assert cut == text
    else:
        assert cut.endswith("...")
        assert text.startswith(cut.removesuffix("..."))


texts = st.text(max_size=2000) | st.builds(lambda text, times: text * times, st.text(max_size=5), st.integers(0, 5000))


@given(
    st.sampled_from(Reason),
    texts,
    st.dictionaries(texts, texts, max_size=5),
    st.lists(st.builds(Violation, texts, texts), max_size=50),
    st.none() | st.floats(0, 1e6),
)
def test_details_are_within_their_bound(
    reason: Reason, text: str, metadata: dict[str, str], violations: list[Violation], retry_after: float | None
) -> None:
    """Whatever an error carries, text and details stay within bounds, and a cut shows in the metadata."""
    status = status_of(Failure(reason, text, metadata, tuple(violations), retry_after))
    info, bad, retry = details(status)
    assert travelling(status.text) <= TEXT_BYTES
    assert len(status.metadata[0][1]) <= DETAILS_BYTES
    assert (retry is not None) == (retry_after is not None)
    kept = [(entry.field, entry.description) for entry in bad.field_violations] if bad else []
    given_whole = [(violation.field, violation.problem) for violation in violations]
    assert (TRUNCATED in info.metadata) == ((kept, dict(info.metadata)) != (given_whole, metadata))


def test_lone_surrogates_are_replaced() -> None:
    """Text that UTF-8 can't hold is sent with question marks, not turned into another error."""
    failure = Failure(Reason.INVALID_REQUEST, "a\ud800b", {"k": "\udfff"}, (Violation("\ud800", "\ud800"),))
    status = status_of(failure)
    info, bad, _ = details(status)
    assert (status.text, info.metadata["k"]) == ("a?b", "?")
    assert bad is not None
    assert bad.field_violations[0].field == "?"


def test_the_first_violation_always_fits() -> None:
    """Even with the longest text, metadata and violations, the first bad field is told."""
    long = "\u20ac" * 5000
    failure = Failure(
        Reason.INVALID_REQUEST, "x" * 5000, {"a": long, "b": long, "c": "d"}, (Violation(long, long),) * 3, 3.0
    )
    info, bad, _ = details(status_of(failure))
    assert bad is not None
    assert len(bad.field_violations) >= 1
    assert bad.field_violations[0].field.startswith("\u20ac")
    assert info.metadata["a"].endswith("...")
    assert info.metadata[TRUNCATED] == "true"
