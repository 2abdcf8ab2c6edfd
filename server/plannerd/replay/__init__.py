"""Runs a recorded invocation again, without a network and without a model, and says what differs."""

from plannerd.replay.recording import Recording, RecordingError, read_recording
from plannerd.replay.replaying import Replayed, replay

__all__ = ["Recording", "RecordingError", "Replayed", "read_recording", "replay"]
