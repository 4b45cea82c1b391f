"""Domain: what the cluster's own history teaches of jobs and operations.

Face: `feature.LearningFeature`. Imported by the core."""
