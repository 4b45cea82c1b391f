"""The probes of the application monitor: what finds out whether an instance of a web application serves."""
