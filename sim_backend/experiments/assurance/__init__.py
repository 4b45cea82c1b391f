"""The experiments of the paper on statistical assurance (statistical-assurance.txt): `paper.PAPER`.

Tables 1 and 2: `sizes`; figures 4 and 5: `simulated`; Table 3 and figures 6 to 8: `policed`; charts: `plots`.
"""
