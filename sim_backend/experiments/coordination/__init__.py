"""The experiments of the paper on coordination (phoenixcloud.txt): `paper.PAPER`."""
