"""Dispatch of inputs, leadership, restore from the store, commit (store, then send). Imported by shells and
simulators: `controller.Controller`."""
