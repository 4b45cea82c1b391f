"""Domain: how jobs load nodes, learnt from reports and standard jobs.

Face: `feature.InterferenceFeature`. Imported by the core, requests and views."""
