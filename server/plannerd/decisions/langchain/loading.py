"""Finds the model that the settings name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from langchain_core.decisions import BaseDecisionModel


def load_model(path: str, arguments: Mapping[str, Any]) -> BaseDecisionModel:
    """What `package.module:name` stands for: a decision model, or what makes one of `arguments`.

    Args:
        path: from the settings of the server, never from a client: it runs code.
        arguments: keyword arguments for a class or function.

    Raises:
        ValueError: there is nothing of that name, it fails, or it makes something else.
    """
    module, _, name = path.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        if not isinstance(found, BaseDecisionModel):
            found = found(**arguments)
        elif arguments:
            raise TypeError("it is a model already and takes no arguments")
    except Exception as error:  # whatever a foreign package does
        # The text of its exception may quote arguments; their names and what went wrong are for its author.
        raise ValueError(f"factory '{path}': {type(error).__name__}: {error}") from error
    if not isinstance(found, BaseDecisionModel):
        raise ValueError(f"factory '{path}' gives a {type(found).__name__}, which is no BaseDecisionModel")
    return found
