"""What travels over the bus: topology, permissions, messages and their codec. Imported by shells, cores and
commands."""
