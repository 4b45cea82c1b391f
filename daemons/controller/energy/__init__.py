"""Domain: meters, prices and what a cycle costs.

Face: `feature.EnergyFeature`.

Face: `feature.EnergyFeature`. Imported by the core, requests and views."""
