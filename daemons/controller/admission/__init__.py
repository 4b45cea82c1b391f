"""Domain: whether an environment may come in and at what assurance, and whether promises are kept.

Face: `feature.AdmissionFeature`. Imported by the core, requests and views."""
