"""Domain: nodes into service and out of it, drain, sleep, wake, hand-over. Imported by the core, requests and
views."""
