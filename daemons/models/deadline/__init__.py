"""Servers for batch jobs with a shared deadline (batch-provisioning.txt): the jobs in the system as a birth-death chain
that changes with time, what sizes keep the promise, what they are expected to cost, and what a rule for sizes brings."""
