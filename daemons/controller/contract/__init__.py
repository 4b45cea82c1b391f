"""The contract between the core and its domains: `Feature`, the feature set, replies to clients, computations.

Face: `Feature`, `FeatureSet`, `Replies`, `Computations`. Every package of the controller but `state` may import it.
"""
