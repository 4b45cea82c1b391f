"""The experiments of the paper on provisioning (batch-provisioning.txt): `paper.PAPER`.

Table 5 and figure 5: `runs`, reported by `rows`; five cost functions: `costs`; charts: `plots`.
"""
