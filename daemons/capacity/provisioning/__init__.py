"""A period with a deadline: how many servers when, and what that costs: `report`."""
