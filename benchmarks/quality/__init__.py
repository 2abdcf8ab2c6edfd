"""What a decision model is worth: labelled requests, the planners' own questions, and how often the answers are right.

`python -m benchmarks quality --config plannerd.yaml --model NAME` measures any model of a settings file;
docs/decision-models.md says what the figures mean.
"""
