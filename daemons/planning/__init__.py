"""From desired and observed state to the next safe steps: pure, values in and values out.

`diff` lists the differences between one workload and its desired state, `order` puts such needs into waves in which
every intermediate state is feasible, `validate` checks one step again just before it is sent. `make_room` finds
the live migrations after which one more VM fits on a node.
"""
