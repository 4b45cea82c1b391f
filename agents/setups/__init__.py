"""What is done to the agent's own host when it changes hands."""
