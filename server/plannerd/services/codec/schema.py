"""The planners of a server as ListPlanners shows them, with the JSON schemas of their configurations.

The schemas of the contract's planners are made from the contract itself.
"""

from __future__ import annotations

import json
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from plannerd.invocations.state_format import FORMATS
from plannerd.planners.registry import Registry
from plannerd.services.codec.replies import encode_topology
from plannerd_protos.planner.v1 import planner_pb2, planners_pb2

_CONFIGS: Final = {
    "bdi": planners_pb2.BdiConfig.DESCRIPTOR,
    "cascade": planners_pb2.CascadeConfig.DESCRIPTOR,
    "router": planners_pb2.RouterConfig.DESCRIPTOR,
    "scheduler": planners_pb2.SchedulerConfig.DESCRIPTOR,
}

_SCALARS: Final[dict[int, dict[str, Any]]] = {
    FieldDescriptor.CPPTYPE_STRING: {"type": "string"},
    FieldDescriptor.CPPTYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.CPPTYPE_DOUBLE: {"type": "number"},
    FieldDescriptor.CPPTYPE_INT32: {"type": "integer"},
}


def encode_planners(registry: Registry) -> list[planner_pb2.PlannerInfo]:
    """Every planner, in the order of names."""
    shown = [(info.kind, _configuration_schema(info.kind)) for info in registry.builtin]
    shown += [(plugin.name, plugin.schema()) for plugin in registry.plugins.values()]
    return [
        planner_pb2.PlannerInfo(
            name=name,
            topology=encode_topology(registry.topology(name)),
            configuration_schema=schema,
            state_formats=sorted(FORMATS),
        )
        for name, schema in sorted(shown, key=lambda item: item[0])
    ]


def _configuration_schema(kind: str) -> str:
    """The JSON schema of a planner's Config message, in the JSON form of protobuf, as a text."""
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **_message(_CONFIGS[kind])})


def _message(descriptor: Descriptor) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {field.json_name: _field(field) for field in descriptor.fields},
    }


def _field(field: FieldDescriptor) -> dict[str, Any]:
    schema = _message(field.message_type) if field.message_type else _SCALARS[field.cpp_type]
    return {"type": "array", "items": schema} if field.is_repeated else schema
