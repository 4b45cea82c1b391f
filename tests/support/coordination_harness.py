"""A harness with environments: nodes, jobs and the demand of web applications as a test says them."""

from __future__ import annotations

from typing import Any

from daemons.controller.state.environment import EnvironmentEntry
from daemons.values.records.cluster import Deleted
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode
from shared.protocol.operator_messages import AddNode, SubmitJob, SubmitWeb
from shared.values.actions import GuestChange
from shared.values.agreement import Agreement, BatchTerms, EnvironmentState, OnReclaim, WorkloadType
from shared.values.jobs import JobPhase
from shared.values.nodes import Node
from shared.values.web_app import WebApp
from sim_backend.fakes.store import MemoryStore
from tests.support import parts
from tests.support.controller_harness import ControllerHarness, job

LEASE_S = 600.0
KILL = BatchTerms(on_reclaim=OnReclaim.KILL)


class CoordinationHarness(ControllerHarness):
    """Nodes of 4 x 1,000 MHz and 4,000 MiB, each filled by one instance of a job or web application here."""

    def __init__(self, count: int, store: MemoryStore | None = None, **settings: Any) -> None:
        self.muted: set[str] = set()
        self._guest_events = 0
        settings.setdefault("unreachable_after_s", 1e9)  # nodes need not report for ever where nothing is lost
        settings.setdefault("web_adjust_s", 1e9)  # the tests say how many instances there are to be
        super().__init__([f"n{index:03}" for index in range(count)], store or MemoryStore(Deleted), **settings)

    def begin(self) -> CoordinationHarness:
        """Lead."""
        self.lead()
        return self

    def successor(self) -> CoordinationHarness:
        """Another controller leads, over the same store and hosts."""
        other = CoordinationHarness(len(self.nodes), self.store)
        other.now_s, other.nodes, other.boots = self.now_s, self.nodes, self.boots
        other.seqs, other.vms, other.muted = self.seqs, self.vms, self.muted
        other.carry(other.controller.start(other.now_s))
        other.look()
        other.look()  # once greeted, they are believed
        return other

    def environment(self, name: str, workload: str, lower: int, partner: str = "", **fields: Any) -> EnvironmentEntry:
        """An environment that is activated, but has not been asked for its size yet."""
        fields.setdefault("lease_s", LEASE_S)
        agreement = Agreement(name, "anna", WorkloadType(workload), lower=lower, **fields)
        cluster = self.controller.cluster
        running = EnvironmentState.RUNNING
        entry = EnvironmentEntry(
            agreement, name, len(cluster.environments), created_s=self.now_s, state=running, wanted=running
        )
        entry.partner = partner
        cluster.environments[name] = entry
        self.controller.unit_of_work.change_environment(entry)
        return entry

    def pair(self, lower: int, web_lower: int, **fields: Any) -> tuple[EnvironmentEntry, EnvironmentEntry]:
        """A batch environment `hpc` and a web environment `shop` that are coordinated, and serve."""
        hpc = self.environment("hpc", "batch", lower, "shop", **fields)
        shop = self.environment("shop", "web", web_lower, "hpc", **fields)
        self.look()
        return hpc, shop

    def look(self) -> None:
        """Have the driver look, and all that follows done."""
        parts.coordination(self.controller).wake(self.now_s)
        for name in sorted(self.nodes.keys() - self.muted):
            self.report(name)
        self.obey()

    def mute(self, *names: str) -> None:
        """These nodes fall silent."""
        self.muted.update(names)

    def unmute(self, *names: str) -> None:
        """They are heard again."""
        self.muted -= set(names)

    def add_nodes(self, count: int, *, looking: bool = True) -> None:
        """More nodes take part."""
        for _ in range(count):
            name = f"n{len(self.nodes):03}"
            self.nodes[name], self.boots[name] = Node(name, 4, 1_000.0, memory_mib=4_000), "boot-1"
            self.seqs[name], self.vms[name] = 0, {}
            self.ask(AddNode(f"add-{name}", name))
            for _ in range(2):
                self.report(name)
        if looking:
            self.look()

    def finish(self, name: str) -> None:
        """The guests of a job end."""
        for instance in self.controller.cluster.jobs[name].instances:
            (node,) = instance.may_run_on
            self._guest_events += 1
            self.guest(node, instance.vm, GuestChange.ENDED, self._guest_events)
        self.obey()

    def pass_time(self, seconds: float) -> None:
        """Let time pass from one timer of the controller to the next, every order obeyed."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            due_s = min(at_s for name, at_s in self.timers.items() if name != "probe")
            self.now_s = min(end_s, max(due_s, self.now_s + 0.001))
            self.settle()
            self.obey()

    def pass_reporting(self, seconds: float) -> None:
        """Let time pass, the nodes that are not muted reporting."""
        self.wait(seconds, sorted(self.nodes.keys() - self.muted))
        self.obey()

    def app(self, name: str, instances: int, environment: str = "shop", cores: int = 4) -> None:
        """A web application that wants so many instances, each of so many cores of a node and the memory beside."""
        size_mib, size_mhz = 1_000 * cores, 1_000.0 * cores
        app = WebApp(
            name,
            (),
            size_mib,
            max_mhz=size_mhz,
            min_instances=0,
            max_instances=len(self.nodes),
            vcpus=cores,
            environment=environment,
        )
        assert self.ask(SubmitWeb(f"web-{name}", app)).done, self.replies[-1]
        self.demand(name, instances)

    def demand(self, name: str, instances: int) -> None:
        """The web application wants so many instances from now on; those beyond are stopped, as its manager would."""
        cluster = self.controller.cluster
        web = cluster.web[name]
        web.wanted_instances = instances
        cluster_replicas = sorted(cluster.replicas.get(name, {}).items())
        running = [replica for _, replica in cluster_replicas if replica.phase is JobPhase.RUNNING]
        reason = Reason(ReasonCode.ADJUSTMENT)
        stops = [Change(one.job.name, one.revision, ChangeKind.STOP, (), reason) for one in running[instances:]]
        self.controller.deciding.desired.apply(stops, self.now_s)
        self.controller.unit_of_work.coordinate.add(web.app.environment)
        self.controller.unit_of_work.dirty_web[name] = web
        self.controller.unit_of_work.place = True
        self.look()

    def submit(self, name: str, instances: int = 1, environment: str = "hpc", **fields: Any) -> None:
        """A job that needs a node for each instance."""
        fields.setdefault("memory_mib", 4_000)
        asked = job(name, instances=instances, spread=True, environment=environment, **fields)
        reply = self.ask(SubmitJob(f"submit-{name}", asked))
        assert reply.done, reply
        self.obey()

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
