"""Many requests at once: each of them is answered."""

from __future__ import annotations

from collections import Counter

import grpc

from plannerd_protos.planner.v1 import planner_pb2, planner_pb2_grpc
from tests.support.servers import ServerProcess


def test_a_burst_of_requests_is_answered_to_the_last(plannerd: ServerProcess) -> None:
    """Of thousands of requests that come in the same instant none is dropped without a word."""
    with grpc.insecure_channel(plannerd.target) as channel:
        stub = planner_pb2_grpc.PlannerServiceStub(channel)
        for _ in range(2):
            waiting = [stub.ListPlanners.future(planner_pb2.ListPlannersRequest()) for _ in range(3000)]
            codes = Counter(request.code().name for request in waiting)
            assert codes == {"OK": 3000}
