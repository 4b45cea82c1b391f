"""Domain: adopted VMs are restarted on other nodes when their own are proven off.

Face: `feature.FailoverFeature`. Imported by the core."""
