"""Domain: rules, damping and delivery of notifications.

Face: `feature.NotificationsFeature`. Imported by the core, requests and views."""
