"""What is asked of jobs: submit and cancel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from daemons.controller.contract.feature import DONE, Caller, Refused, RequestHandler
from daemons.controller.contract.feature_set import FeatureSet
from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.requests.job_profile import with_stages
from daemons.controller.requests.vms import VmRequests
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import OVER, JobEntry
from daemons.controller.state.migration_fit import no_template
from daemons.controller.state.node_fit import fits_nowhere, inventories
from daemons.controller.state.transitions import cancel
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.records.cluster import DECLARED
from daemons.values.replies import unknown
from shared.protocol.operator_messages import CancelJob, ReleaseVm, SubmitJob
from shared.values.jobs import Job, JobPhase


class JobRequests:
    """Carries them out; each checks everything first. `handlers`: by request."""

    def __init__(
        self,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        deciding: DecisionCycle,
        features: FeatureSet,
        vms: VmRequests,
    ) -> None:
        self.cluster, self.unit_of_work, self.deciding = cluster, unit_of_work, deciding
        self._features, self._vms = features, vms
        self.handlers: Mapping[type, RequestHandler] = {SubmitJob: self._submit, CancelJob: self._cancel}

    def _submit(self, request: SubmitJob, caller: Caller, now_s: float) -> Refused:
        job = request.job
        known = self.cluster.jobs.get(job.name)
        if known is not None and known.request == request.request:
            return DONE
        refused = self._refuse_name(job)
        if refused != DONE:
            return refused
        profile = DECLARED
        if not job.stages:
            job, profile = with_stages(job, self.cluster.jobs.values())
            if not job.stages:
                return "no-profile", profile
        refused = self._features.refuse(replace(request, job=job), caller, now_s)
        if refused != DONE:
            return refused
        misfit = fits_nowhere(job, inventories(self.cluster, job.environment), self.cluster.vm_overhead_mib)
        if misfit:
            return "fits-no-node", misfit
        lacking = no_template(job.template, self.cluster)
        if lacking:
            return "unknown-template", lacking
        order = self.deciding.next_submission()
        entry = JobEntry(job, request.request, order, accepted_s=now_s, profile=profile, user=caller.sender)
        self._features.accepted(entry)
        self.cluster.add_job(entry)
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True
        self.unit_of_work.emit(now_s, "job-submitted", job.name)
        return DONE

    def _refuse_name(self, job: Job) -> Refused:
        if job.name in self.cluster.jobs:
            return "duplicate-name", f"there is a job {job.name!r} already; choose another name"
        if job.app:
            return "invalid-value", f"app is {job.app!r}, expected nothing: submit a web application instead"
        if job.name in self.cluster.web_names:
            return "duplicate-name", f"{job.name!r} is or was a web application; choose another name"
        taken = self.cluster.names_taken(job)
        if taken:
            return "duplicate-name", f"the adopted VM {taken!r} has the name of one of its VMs; choose another name"
        return DONE

    def _cancel(self, request: CancelJob, _caller: Caller, now_s: float) -> Refused:
        entry = self.cluster.job(request.job)
        if entry is None:
            return "unknown-job", unknown("job", request.job, self.cluster.jobs)
        if entry.phase is JobPhase.CANCELLED:
            return DONE
        if entry.phase in OVER:
            return "job-over", f"job {request.job!r} is {entry.phase} already"
        if entry.adopted:  # it is not ours to end
            return self._vms.forget(ReleaseVm(request.request, request.job), now_s)
        cancel(self.cluster, self.unit_of_work, entry, now_s)
        return DONE
