"""The conformance suite: what every implementation of the contract must do, as data, and the runner for it."""
