"""A batch and a web environment that share nodes, played in virtual time: `runs`."""
