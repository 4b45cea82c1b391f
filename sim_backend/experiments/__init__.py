"""Experiments of the papers, played again: each paper's figures beside ours, and whether its claims hold.

One package per paper, listed in `catalogue`; docs/appendix/papers.md has what came out.
"""
