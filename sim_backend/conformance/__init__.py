"""Suites that run on every implementation of a port; importable, so that a third party can run them on its own."""
