"""Tables of sizes that take long to compute: how one is made and named, and those in memory. Pure."""
