"""Domain: web applications, their measured load, replicas, load balancing and health.

Face: `feature.WebFeature`. Imported by the core, requests and views."""
