"""One decision, computed: what the worker runs. Its request as bytes, records, replay and overrides. Imported by
the controller, its shell and the simulator."""
