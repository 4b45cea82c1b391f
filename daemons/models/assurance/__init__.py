"""Demand profiles and statistical assurance (statistical-assurance.txt, sections 3 and 5): how much is asked for in
each slot of a calendar, and how much must be there so that a stated part of it is served.

Values and numpy arrays in, values out. Reading, formulas and limits: docs/explanation/assurance.md.
"""
