"""Domain: rules, damping and delivery of notifications. Imported by the core, requests and views."""
