"""The decision model of a storm: outside of every plannerd process, so that it outlives them and counts for itself.

Each request is numbered. The number goes back as the tokens that it cost, which every explanation repeats: a client
that receives a step learns which request it was decided by. So each request that was paid for can be followed to
whoever got its answer, or to whatever prevented that.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from types import TracebackType
from typing import Self

import grpc.aio

from plannerd_protos.planner.v1 import decision_pb2, decision_pb2_grpc
from tests.faults.events import EventLog
from tests.faults.scenarios import INVOCATION, case_of, chance

REPLICA_HEADER = "x-replica"
"""Each replica says in it who it is."""


class Oracle(decision_pb2_grpc.DecisionModelServiceServicer):
    """Answers by question and case alone, takes its time, and notes who asked what.

    Args:
        log: where it is noted.
        seed: of the answers and of how long they take.
        pace: the longest that an answer takes, in seconds.
    """

    def __init__(self, log: EventLog, seed: int, pace: float) -> None:
        self._log = log
        self._seed = seed
        self._pace = pace
        self._asked = 0
        self._server = grpc.aio.server()
        self._waiting: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)
        self.target = ""

    async def __aenter__(self) -> Self:
        decision_pb2_grpc.add_DecisionModelServiceServicer_to_server(self, self._server)
        self.target = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.stop(0)

    async def Decide(
        self,
        request: decision_pb2.DecideRequest,
        context: grpc.aio.ServicerContext[decision_pb2.DecideRequest, decision_pb2.DecideResponse],
    ) -> decision_pb2.DecideResponse:
        """Answer, after a while."""
        self._asked += 1
        ask = self._asked
        invocation = next(field.value.string_value for field in request.input if field.name == INVOCATION)
        about = {"ask": ask, "case": case_of(invocation), "invocation": invocation}
        replica = next((str(value) for key, value in context.invocation_metadata() or () if key == REPLICA_HEADER), "")
        self._log.write("asked", **about, key=_key(request), replica=replica)
        for waiting in self._waiting.pop(invocation, ()):
            if not waiting.done():
                waiting.set_result(None)
        try:
            await asyncio.sleep(self._pace * chance(self._seed, ask) ** 2)
        except asyncio.CancelledError:
            self._log.write("hung-up", **about)
            raise
        self._log.write("answered", **about)
        answers = [self._answer(case_of(invocation), question) for question in request.questions]
        return decision_pb2.DecideResponse(answers=answers, model="oracle", usage=decision_pb2.Usage(input_tokens=ask))

    def next_question(self, invocation: str) -> asyncio.Future[None]:
        """Done as soon as somebody asks for `invocation`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[invocation].append(future)
        return future

    def _answer(self, case: str, question: decision_pb2.Question) -> decision_pb2.Answer:
        answer = decision_pb2.Answer(question=question.name)
        number = chance(self._seed, case, question.name, question.text)
        match question.WhichOneof("kind"):
            case "yes_no":
                # Only ever asked once the reply exists.
                answer.yes_no.probability = 0.9 if question.name == "goal" else number
            case "choice":
                options = question.choice.options
                answer.choice.value = options[int(number * len(options))].name
            case _:
                answer.scale.mean = 1 + number * (len(question.scale.levels) - 2)
        return answer


def _key(request: decision_pb2.DecideRequest) -> str:
    """What tells decisions apart: the questions and the input."""
    return hashlib.sha256(request.SerializeToString(deterministic=True)).hexdigest()[:16]
