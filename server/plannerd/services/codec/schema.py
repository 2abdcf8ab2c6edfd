"""JSON schemas of planner configurations, made from the contract itself."""

from __future__ import annotations

import functools
import json
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from plannerd_protos.planner.v1 import planners_pb2

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


@functools.cache
def configuration_schema(kind: str) -> str:
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
