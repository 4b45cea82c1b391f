"""Domain: agreements and their life, pairing, how many units each environment has, and which nodes.

Face: `feature.EnvironmentsFeature`. Imported by the core, requests and views."""
