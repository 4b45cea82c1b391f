"""Commands under `trimtab env` that play in virtual time; found by entry point, so that nothing imports them."""
