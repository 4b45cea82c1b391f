"""Fault scripts: drawn from a seed, carried out on a closed loop, checked after every event: `run.run_seed`.
Imported by commands and tests."""
