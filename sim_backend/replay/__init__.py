"""A policy against the world without a bus: `engine.run_direct`. Imported by commands, experiments and tests."""
