"""The real controller and agents on the in-process bus in virtual time: `closed_loop.ClosedLoop`. Imported by
commands, faults, history and tests."""
