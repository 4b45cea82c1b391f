"""Environments under random requests, setups that are answered late, and controllers that die: a refusal changes
nothing, the lower bounds can always be met, and what goes down leaves nothing behind."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shared.protocol.operator_messages import SubmitJob, SubmitWeb
from shared.values.agreement import EnvironmentState
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.jobs import JobPhase
from tests.extent import examples
from tests.support.controller_harness import job
from tests.support.environment_harness import DEACTIVATED, DESTROYED, RUNNING, EnvironmentHarness, app

NAMES = ("a", "b", "c", "d")
NODES = 3
NAME = st.sampled_from(NAMES)
LAWFUL = {
    EnvironmentState.UNINITIALISED: {EnvironmentState.CREATED, RUNNING, DESTROYED},
    EnvironmentState.CREATED: {EnvironmentState.CREATED, RUNNING, DEACTIVATED, DESTROYED},
    RUNNING: {RUNNING, DEACTIVATED, DESTROYED},
    DEACTIVATED: {RUNNING, DEACTIVATED, DESTROYED},
    DESTROYED: {DESTROYED},
}


class Owners(RuleBasedStateMachine):
    """Two owners ask for what comes to their minds."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = EnvironmentHarness(NODES)
        self.harness.lead()
        self.workloads = 0

    @initialize(wipe=st.booleans(), eve=st.booleans())
    def begin(self, wipe: bool, eve: bool) -> None:
        """Most of what may happen happens to environments that run."""
        self.create("a", "batch", 1, "b", False, False, wipe)
        self.create("b", "web", 1, "", eve, True, not wipe)
        for name in ("a", "b"):
            self.move(name, "activate")
        self.submit("a")
        self.submit("b")

    # --- requests ---------------------------------------------------------------------------------------------------

    @rule(
        name=NAME,
        workload=st.sampled_from(["batch", "web"]),
        lower=st.integers(0, 2),
        other=st.sampled_from(["", *NAMES]),
        eve=st.booleans(),
        shares=st.booleans(),
        wipe=st.booleans(),
    )
    def create(self, name: str, workload: str, lower: int, other: str, eve: bool, shares: bool, wipe: bool) -> None:
        self.harness.create(
            name,
            workload,
            lower,
            owner="eve" if eve else "anna",
            coordinated_with="" if other == name else other,
            shares=shares,
            notice_s=20.0,
            lease_s=60.0,
            setup=Setup(SetupPolicy.WIPE if wipe else SetupPolicy.NOOP),
        )

    @rule(name=NAME, what=st.sampled_from(["activate", "activate", "deactivate", "destroy"]))
    def move(self, name: str, what: str) -> None:
        self.ask(lambda: getattr(self.harness, what)(name))

    @rule(name=NAME, lower=st.integers(0, 4))
    def resize(self, name: str, lower: int) -> None:
        self.ask(lambda: self.harness.resize(name, lower))

    @rule(name=NAME, other=NAME, on=st.booleans())
    def consent(self, name: str, other: str, on: bool) -> None:
        self.ask(lambda: self.harness.consent(name, other, on=on))

    @rule(name=NAME)
    def submit(self, name: str) -> None:
        self.workloads += 1
        number = f"w{self.workloads}"
        entry = self.harness.controller.cluster.environments.get(name)
        if entry is None or entry.batch:
            self.ask(lambda: self.harness.ask(SubmitJob(number, job(number, environment=name))))
        else:
            self.ask(lambda: self.harness.ask(SubmitWeb(number, app(number, name, 0))))

    def ask(self, request: object) -> None:
        before = self.harness.store.records()
        assert callable(request)
        if not request().done:
            assert self.harness.store.records() == before

    # --- time and chance --------------------------------------------------------------------------------------------

    @rule()
    def obey(self) -> None:
        self.harness.obey()

    @rule()
    def set_up(self) -> None:
        self.harness.set_up(1)

    @rule(seconds=st.sampled_from([5.0, 25.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.harness.wait(seconds, self.harness.nodes)

    @rule()
    def die(self) -> None:
        self.harness = self.harness.successor()

    # --- what holds always ------------------------------------------------------------------------------------------

    @invariant()
    def states_are_lawful_and_stored(self) -> None:
        for name, entry in self.harness.controller.cluster.environments.items():
            assert entry.wanted in LAWFUL[entry.state], entry
            assert self.harness.store.get(("environment", name)) == entry.record()

    @invariant()
    def lower_bounds_can_be_met(self) -> None:
        entries = self.harness.controller.cluster.environments.values()
        assert sum(entry.agreement.lower for entry in entries if not entry.over) <= NODES

    @invariant()
    def partners_are_two_that_serve(self) -> None:
        environments = self.harness.controller.cluster.environments
        for name, entry in environments.items():
            if entry.partner:
                other = environments[entry.partner]
                assert (other.partner, other.parts_s) == (name, entry.parts_s)
                assert entry.serves
                assert entry.batch is not other.batch

    @invariant()
    def what_is_down_has_nothing(self) -> None:
        cluster = self.harness.controller.cluster
        for name, entry in cluster.environments.items():
            if entry.serves:
                continue
            assert all(node.given != name for node in cluster.nodes.values())
            jobs = cluster.jobs_of(name)
            assert all(each.phase is not JobPhase.RUNNING for each in jobs)
            if entry.state in (DEACTIVATED, DESTROYED):
                assert all(node.environment != name for node in cluster.nodes.values())
                assert not any(instance.may_run_on for each in jobs for instance in each.instances)
            if entry.destroyed:
                assert not jobs

    def teardown(self) -> None:
        """Whatever was begun comes to its end."""
        for _ in range(3):
            self.harness.finish()
            self.harness.wait(70.0, self.harness.nodes)
        self.harness.finish()
        for entry in self.harness.controller.cluster.environments.values():
            assert entry.state is entry.wanted, entry


TestOwners = Owners.TestCase
TestOwners.settings = settings(max_examples=examples(40), stateful_step_count=30)
