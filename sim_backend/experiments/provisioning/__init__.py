"""The experiments of the paper on provisioning (batch-provisioning.txt): `paper.PAPER`."""
