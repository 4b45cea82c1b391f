"""The rows of the cluster, the ledger of actions and the unit of work. Imported by every package of the
controller."""
