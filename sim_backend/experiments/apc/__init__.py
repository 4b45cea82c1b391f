"""The experiments of the paper on application placement (apc.txt): `paper.PAPER`."""
