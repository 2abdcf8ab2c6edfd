"""One decision in several requests, for models that take fewer questions at a time than there are."""

from __future__ import annotations

from dataclasses import replace

from plannerd.decisions.questions import DecisionRequest


def split(request: DecisionRequest, most: int | None) -> tuple[DecisionRequest, ...]:
    """The parts of `request`: its questions in order, at most `most` in each, all over the same input.

    There are as few parts as possible. Their sizes differ by one at most, so that none has a lone question
    where a model sees all questions of a request together.

    Args:
        request: what is to be asked.
        most: questions that the model takes in one request, at least 1; None: any number.
    """
    questions = request.questions
    if most is None or len(questions) <= most:
        return (request,)
    count = -(-len(questions) // most)
    size, larger = divmod(len(questions), count)
    parts: list[DecisionRequest] = []
    start = 0
    for number in range(count):
        end = start + size + (number < larger)
        parts.append(replace(request, questions=questions[start:end]))
        start = end
    return tuple(parts)
