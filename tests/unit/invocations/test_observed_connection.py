"""Telemetry knows every script that the shared store runs."""

from plannerd.invocations.stores import scripts
from plannerd.invocations.stores.observed import _OPERATIONS


def test_every_script_has_a_name() -> None:
    """Each script is an operation with a name of its own; one without would fail its request."""
    every = {value for name, value in vars(scripts).items() if name.isupper() and isinstance(value, str)}
    assert set(_OPERATIONS) == every
    assert len(set(_OPERATIONS.values())) == len(every)
