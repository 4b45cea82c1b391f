"""Domain: meters, prices and what a cycle costs (`metering`, at the prices of `prices`).

Face: `feature.EnergyFeature`. Imported by the core, requests and views."""
