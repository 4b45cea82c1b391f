"""Domain: nodes into service and out of it, drain, sleep, wake, hand-over.

Face: `feature.NodesFeature`. Imported by the core, requests and views."""
