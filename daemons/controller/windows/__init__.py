"""Domain: deadline windows, forecasts, and jobs that wait for other jobs.

Face: `feature.WindowsFeature`. Imported by the core, requests and views."""
