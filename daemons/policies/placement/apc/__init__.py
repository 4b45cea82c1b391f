"""APC, the application placement controller: utilities of jobs and web applications, extended max-min (apc.txt)."""

from daemons.policies.placement.apc.policy import Apc

__all__ = ["Apc"]
