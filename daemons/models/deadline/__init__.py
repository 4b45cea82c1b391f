"""Servers for batch jobs with a shared deadline (batch-provisioning.txt): the jobs in the system as a birth-death
chain that changes with time, sizes that keep the promise, their expected cost, and what a rule for sizes brings."""
