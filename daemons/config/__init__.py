"""The configuration files of the daemons, every key with its unit, range and default. Imported by shells, never by
cores."""
