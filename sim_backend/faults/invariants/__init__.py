"""Invariants that must hold under every failure, checked in the cores and in the world after each event."""
