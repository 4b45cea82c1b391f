"""What a process counts, and how it is served to Prometheus. Imported by the processes."""
