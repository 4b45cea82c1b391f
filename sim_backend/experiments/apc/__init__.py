"""The experiments of the paper on application placement (apc.txt): `paper.PAPER`.

Tables 2 and 3: `settings`; Experiment One: `hypothetical`, Two and Three: `equal`, Four: `random`, Five: `mixed`;
charts: `plots`.
"""
