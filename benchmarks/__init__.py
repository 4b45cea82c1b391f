"""Speeds, each beside a deliberately plain way of doing the same: `python -m benchmarks`.

A bench is a module here with a function `bench(data_folder) -> Bench`; it runs when its name is in `runner.BENCHES`.
"""
