"""A desk with environments: nodes, jobs and the demand of web applications as a test says them."""

from __future__ import annotations

from typing import Any

from daemons.environment_entry import EnvironmentEntry
from daemons.records import Deleted
from shared.agreement import Agreement, BatchTerms, EnvironmentState, OnReclaim, WorkloadType
from shared.decision import Change, ChangeKind, Reason, ReasonCode
from shared.messages import SubmitJob, SubmitWeb
from shared.model import Job, JobPhase
from shared.webapp import WebApp
from sim_backend.memory_store import MemoryStore
from tests.unit.desk import Desk, job

HOUR_S = 3_600.0
KILL = BatchTerms(on_reclaim=OnReclaim.KILL)


class CoordinationDesk(Desk):
    """Nodes of 4 x 1,000 MHz and 4,000 MiB, each filled by one instance of a job or web application here."""

    def __init__(self, count: int, store: MemoryStore | None = None, **settings: Any) -> None:
        settings.setdefault("web_adjust_s", 1e9)  # the tests say how many instances there are to be
        super().__init__([f"n{index:03}" for index in range(count)], store or MemoryStore(Deleted), **settings)

    def begin(self) -> CoordinationDesk:
        """Lead."""
        self.lead()
        return self

    def environment(self, name: str, workload: str, lower: int, partner: str = "", **fields: Any) -> EnvironmentEntry:
        """An environment that is activated, but has not been asked for its size yet."""
        agreement = Agreement(name, "anna", WorkloadType(workload), lower, **fields)
        cluster = self.controller.cluster
        running = EnvironmentState.RUNNING
        entry = EnvironmentEntry(agreement, name, len(cluster.environments), self.now_s, running, running)
        entry.partner = partner
        cluster.environments[name] = entry
        self.controller.agenda.change_environment(entry)
        return entry

    def pair(self, lower: int, web_lower: int, **fields: Any) -> tuple[EnvironmentEntry, EnvironmentEntry]:
        """A batch environment `hpc` and a web environment `shop` that are coordinated, and serve."""
        hpc = self.environment("hpc", "batch", lower, "shop", **fields)
        shop = self.environment("shop", "web", web_lower, "hpc", **fields)
        self.look()
        return hpc, shop

    def look(self) -> None:
        """Have the driver look, and all that follows done."""
        self.controller.coordinating.wake(self.now_s)
        for name in self.nodes:
            self.report(name)
        self.obey()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, every node reporting and every order obeyed."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.wait(min(60.0, end_s - self.now_s), self.nodes)
            self.obey()

    def app(self, name: str, instances: int, environment: str = "shop") -> None:
        """A web application that wants so many instances."""
        app = WebApp(name, (), 4_000, 4_000.0, 0, len(self.nodes), vcpus=4, environment=environment)
        assert self.ask(SubmitWeb(f"web-{name}", app)).done, self.replies[-1]
        self.demand(name, instances)

    def demand(self, name: str, instances: int) -> None:
        """The web application wants so many instances from now on; those beyond are stopped, as its manager would."""
        cluster = self.controller.cluster
        web = cluster.web[name]
        web.wanted_instances = instances
        cluster_seats = sorted(cluster.seats.get(name, {}).items())
        running = [seat for _, seat in cluster_seats if seat.phase is JobPhase.RUNNING]
        reason = Reason(ReasonCode.ADJUSTMENT)
        stops = [Change(one.job.name, one.revision, ChangeKind.STOP, (), reason) for one in running[instances:]]
        self.controller.deciding.apply(stops, self.now_s)
        self.controller.coordinating.demand(web.app.environment, self.now_s)
        self.controller.agenda.dirty_web[name] = web
        self.controller.agenda.place = True
        self.look()

    def submit(self, name: str, instances: int = 1, environment: str = "hpc", **fields: Any) -> Job:
        """A job that needs a node for each instance."""
        asked = job(name, instances=instances, memory_mib=4_000, separate=True, environment=environment, **fields)
        reply = self.ask(SubmitJob(f"submit-{name}", asked))
        assert reply.done, reply
        self.obey()
        return asked

    def given(self, environment: str) -> list[str]:
        """The nodes that an environment is to have."""
        return [node.name for node in self.controller.cluster.nodes.values() if node.given == environment]

    def held(self) -> dict[str, int]:
        """How many nodes each environment is to have."""
        return {name: len(self.given(name)) for name in self.controller.cluster.environments}

    def sizes(self) -> dict[str, int]:
        """How many units each environment is to have."""
        return {name: entry.size for name, entry in self.controller.cluster.environments.items()}

    def phases(self) -> dict[str, str]:
        """Where every job is."""
        return {name: one.phase.value for name, one in self.controller.cluster.jobs.items() if not one.job.app}
