"""Domain: deadline windows, forecasts, and jobs that wait for other jobs. Imported by the core, requests and
views."""
