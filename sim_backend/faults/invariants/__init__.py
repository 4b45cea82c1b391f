"""What must hold whatever fails: looked at in the cores and in the world after each event."""
