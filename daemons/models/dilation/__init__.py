"""How much jobs that share a node's resources slow each other down (d-factor.txt).

Every function takes loading vectors p, float64[n, m]: of each job the part (0..1) of its time alone that it spends at
each of m resources, rows that sum to 1 at most (what is left is idle); and servers, [m], whole numbers from 1 on: how
many requests each resource serves side by side, 1 everywhere if None. Which resources the columns are is the caller's.
A dilation is the time that work takes beside others over the time it takes alone, 1 at least.
"""
