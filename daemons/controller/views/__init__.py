"""The cluster as plain data for operators: status, alarms, nodes, jobs, VMs, plans. Imported by the core and
requests."""
