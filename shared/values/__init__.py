"""What the whole system speaks in: nodes, jobs, VMs, actions, web applications, agreements. Pure; imported by all."""
