"""The planners: pure state machines that decide which agent runs next.

No I/O, no clock, no randomness and no protobuf here. A planner that needs a decision yields a
`DecisionRequest` and is sent the answers; what it returns depends on nothing else.
"""
