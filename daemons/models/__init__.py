"""Pure models that policies and planning share: utility of jobs and web applications, stages, profilers.

Values and numpy arrays in, values out: no I/O, no clock, no chance. Sources and units: docs/appendix/models.md.
"""
