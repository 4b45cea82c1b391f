"""From what is wanted and what is seen to the next safe steps: pure, values in and values out.

`diff` names what separates one workload from its desired state, `order` puts such needs into waves in which every
intermediate state is feasible, `validate` looks at one step again just before it is sent.
"""
