"""One process per node: reports the node's state and carries out actions on its VMs."""
