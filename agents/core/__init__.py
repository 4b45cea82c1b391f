"""The agent as a state machine without I/O: `Agent` of `agent.py` is its face; `agents.service` and the simulator
run it."""
