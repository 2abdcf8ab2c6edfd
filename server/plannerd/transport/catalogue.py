"""Which services there are, and what implements each."""

from __future__ import annotations

from plannerd.services.decision_service import DecisionModelService
from plannerd.services.operator_service import OperatorService
from plannerd.services.planner_service import PlannerService
from plannerd.transport.handlers import Service
from plannerd_protos.planner.v1 import decision_pb2, operator_pb2, planner_pb2


def catalogue(
    planner: PlannerService, decisions: DecisionModelService, operators: OperatorService | None = None
) -> tuple[Service, ...]:
    """Every service of the contract, with its implementation; without `operators`, theirs is switched off."""
    return (
        Service(planner_pb2.DESCRIPTOR.services_by_name["PlannerService"], planner),
        Service(decision_pb2.DESCRIPTOR.services_by_name["DecisionModelService"], decisions),
        Service(operator_pb2.DESCRIPTOR.services_by_name["OperatorService"], operators or OperatorService(None)),
    )
