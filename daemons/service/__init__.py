"""The process `trimtab-controller`: `main`, its shell, the worker that computes decisions, metrics. Nothing
imports it."""
