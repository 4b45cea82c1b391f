"""The experiments of the paper on resource sharing (phoenixcloud.txt): `paper.PAPER`.

Tables 1 to 4 and figures 12 to 16: `runs`, reported by `rows`; figures 8 and 9: `serving`.
"""
