"""Which VM runs where, with how much CPU. `room`, `waiting` and `refusals` are shared by the policies of this role."""
