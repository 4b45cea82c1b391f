"""What the core and its domains agree on: `Feature`, the set of them, answers to whoever asks, computations.

Face: `Feature`, `FeatureSet`, `Replies`, `Computations`. Every package of the controller but `state` may import it."""
