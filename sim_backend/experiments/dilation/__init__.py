"""The experiments of the paper on dilation (d-factor.txt): `paper.PAPER`."""
