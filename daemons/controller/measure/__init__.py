"""From reports, results and events of agents to what is known: drift, missing VMs, heartbeats, screening of
messages."""
