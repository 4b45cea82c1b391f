"""What everything may use: errors, the clock, secrets, files, types. Imported by all."""
