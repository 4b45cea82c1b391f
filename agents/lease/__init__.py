"""Storage leases: a host renews its lease on storage that all hosts share, and its watchdog resets it when it cannot;
agents read the leases of other hosts."""
