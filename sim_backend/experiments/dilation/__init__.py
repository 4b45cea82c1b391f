"""The experiments of the paper on dilation (d-factor.txt): `paper.PAPER`.

Table 3 and figures 4 to 8: `figures`; charts: `plots`.
"""
