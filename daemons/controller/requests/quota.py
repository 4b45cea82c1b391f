"""How much one account may have in the cluster at a time, so that none fills it for the others."""

from __future__ import annotations

import math

from daemons.access.identity import Role, who
from daemons.controller.contract.feature import DONE, Caller, Feature, Refused
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.values.settings import Limits
from shared.protocol.operator_messages import CreateEnvironment, Request, SubmitJob, SubmitWeb

RECOUNT_S = 1.0  # a full account's jobs are counted again at most so often: that is O(jobs)


class QuotaFeature(Feature):
    """Refuses what is beyond `Limits.jobs_per_account`, `.apps_per_environment` and `.environments_per_owner`; the
    provider's accounts have no quota."""

    def __init__(self, cluster: Cluster, limits: Limits) -> None:
        self._cluster, self._limits = cluster, limits
        self._jobs: dict[str, tuple[int, float]] = {}  # of an account at most so many, and when they were counted

    def refuse_job(self, sender: str, now_s: float) -> Refused:
        """Return why an account may not submit one more job. O(1), except for a count at most every RECOUNT_S."""
        most = self._limits.jobs_per_account
        if not most or not _has_quota(sender):
            return DONE
        held, counted_s = self._jobs.get(sender, (most, -math.inf))
        if held >= most and now_s >= counted_s + RECOUNT_S:
            held, counted_s = self._count(sender), now_s
        self._jobs[sender] = held, counted_s
        if held < most:
            return DONE
        return "over-quota", (
            f"{sender!r} has {held} jobs that are not over, at most {most}: cancel some, wait until some end, or have "
            "the provider raise limits.jobs_per_account"
        )

    def refuse(self, request: Request, caller: Caller, now_s: float) -> Refused:
        """Refuse what is beyond the caller's quota."""
        match request:
            case SubmitJob():
                return self.refuse_job(caller.sender, now_s)
            case SubmitWeb():
                return self.refuse_app(request.app.name, request.app.environment, caller.sender)
            case CreateEnvironment():
                return self.refuse_environment(request.agreement.owner, caller.sender)
        return DONE

    def accepted(self, job: JobEntry) -> None:
        """Count one more job of its account."""
        self.count_job(job.user)

    def count_job(self, sender: str) -> None:
        """Count one more job of the account in the cluster."""
        if sender in self._jobs:
            held, counted_s = self._jobs[sender]
            self._jobs[sender] = held + 1, counted_s

    def refuse_app(self, name: str, environment: str, sender: str) -> Refused:
        """Return why an environment may not have one more web application. O(web applications)."""
        most = self._limits.apps_per_environment
        if not most or not _has_quota(sender) or name in self._cluster.web:
            return DONE
        if sum(entry.app.environment == environment for entry in self._cluster.web.values()) < most:
            return DONE
        return "over-quota", (
            f"environment {environment!r} has {most} web applications, as many as limits.apps_per_environment lets it"
        )

    def refuse_environment(self, owner: str, sender: str) -> Refused:
        """Return why an owner may not have one more environment. O(environments)."""
        most = self._limits.environments_per_owner
        if not most or not _has_quota(sender):
            return DONE
        if sum(entry.owner == owner and not entry.over for entry in self._cluster.environments.values()) < most:
            return DONE
        return "over-quota", (
            f"owner {owner!r} has {most} environments, as many as limits.environments_per_owner lets it"
        )

    def _count(self, sender: str) -> int:
        return sum(entry.user == sender and not entry.over for entry in self._cluster.jobs.values())


def _has_quota(sender: str) -> bool:
    asker = who(sender)
    return asker is not None and asker.role is not Role.PROVIDER
