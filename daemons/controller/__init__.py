"""The controller as a state machine without I/O and clock: `core.controller.Controller` is its face. Each package
in here may import only those that `setup.cfg` lists below it."""
