"""When to decide, on which Snapshot, and what becomes of it: approval, application, progress, the log of
decisions."""
