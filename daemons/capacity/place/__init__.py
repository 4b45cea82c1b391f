"""Files of a cluster as someone wrote it by hand, turned into what a policy sees: `snapshot.snapshot_of`."""
