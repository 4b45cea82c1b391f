"""The agent's own host: how it goes to sleep, and by which addresses it may be woken."""
