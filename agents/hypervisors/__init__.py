"""Drivers behind the port `Hypervisor`, each found by its entry point."""
