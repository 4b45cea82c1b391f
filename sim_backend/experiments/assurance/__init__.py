"""The experiments of the paper on statistical assurance (statistical-assurance.txt): `paper.PAPER`."""
