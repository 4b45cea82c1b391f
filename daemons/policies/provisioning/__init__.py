"""How many nodes are in service until the next decision."""
