"""Keys of job files and of files for `trimtab load`: what a controller does with the jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from daemons.manifests.job import JobFile, job_of
from daemons.manifests.load import LoadFile, draw
from daemons.manifests.load import job_of as job_of_load
from daemons.values.settings import InterferenceSettings, PolicyChoice
from shared.base.errors import InvalidInput
from shared.protocol.operator_messages import CreateEnvironment, DrainNode, Query, SubmitJob
from shared.values.actions import GuestChange
from shared.values.jobs import Job, Preference, PreferenceKind, Rules, Stage
from shared.values.load_vector import IO, NET, Loading
from tests.conformance.settings.core import Recorded
from tests.conformance.settings.row import Given, Row, shown_by
from tests.support.controller_harness import job
from tests.support.environment_cases import agreement

NODES = ("n1", "n2", "n3")
LABELS = {"n1": ("old", "rack=a"), "n2": ("rack=a",), "n3": ("ssd", "rack=b")}
FIRST_FIT, EDF, APC = PolicyChoice("first-fit"), PolicyChoice("edf"), PolicyChoice("apc")
SHARES = PolicyChoice("first-fit", {"sharing": "composed"})
STAGE: dict[str, Any] = {
    "name": "j",
    "stages[].work_mcycles": 1e6,
    "stages[].max_mhz": 1_000,
    "stages[].memory_mib": 1_000,
}
CONTEST = STAGE | {"stages[].work_mcycles": 4e6, "stages[].memory_mib": 3_900}


def read(given: Given) -> Job:
    """The job, submitted at the beginning of time."""
    return job_of(given.read(JobFile), 0.0, "job.toml")


def recorded(placement: PolicyChoice = FIRST_FIT, nodes: tuple[str, ...] = NODES, **settings: Any) -> Recorded:
    """A leader; n1 and n2 are in one rack, n3 in another, and has the label ssd."""
    harness = Recorded(nodes, placement=placement, **settings)
    for name, labels in LABELS.items():
        if name in harness.nodes:
            harness.nodes[name] = replace(harness.nodes[name], labels=labels)
    harness.lead()
    harness.say(CreateEnvironment("env", agreement("hpc", owner="kim", lower=1)), "owner.kim")
    return harness


def begun(given: Given) -> object:
    """A job that is submitted: the answer, and what is ordered for it."""
    try:
        wanted = read(given)
    except InvalidInput as error:
        return [problem.where for problem in error.problems]
    harness = recorded()
    code = harness.ask(SubmitJob("s", wanted)).code
    specs = [order.spec for order in harness.orders]
    harness.wait(300.0, NODES)
    return code, specs, harness.ordered


def beside(given: Given) -> object:
    """Jobs of its groups are pinned to n2 and n1, then n1 is drained: where the job runs, and whether it moves."""
    harness = recorded(APC)
    other = job("other", rules=Rules(node_affinity=("n2",), affinity="g"))
    apart = job("apart", rules=Rules(node_affinity=("n1",), anti_affinity="h"))
    for each in (other, apart, read(given)):
        harness.ask(SubmitJob(f"s-{each.name}", each))
    harness.obey()
    harness.ask(DrainNode("d1", "n1", True))
    harness.wait(1_000.0, NODES)
    harness.obey()
    return harness.ordered


def preferred(given: Given) -> object:
    """Another job runs on n2, and would rather not share a node with it: where it starts."""
    harness = recorded(APC)
    averse = (Preference(PreferenceKind.ANTI_AFFINITY, "j", weight=50),)
    harness.ask(SubmitJob("other", job("other", rules=Rules(node_affinity=("n2",), preferred=averse))))
    harness.obey()
    harness.ask(SubmitJob("s", read(given)))
    return [order.node for order in harness.orders]


def contest(given: Given) -> object:
    """Another job with a goal wants the only place there is: which one has it."""
    harness = recorded(EDF, ("n1",))
    harness.ask(SubmitJob("other", job("other", work=4e6, memory_mib=3_900, goal_s=9_000.0)))
    code = harness.ask(SubmitJob("s", read(given))).code
    harness.obey()
    harness.wait(1_000.0, ("n1",))
    return code, [each[1:] for each in harness.ordered]


def shared(given: Given) -> object:
    """Another job with a goal shares a node's CPU: how much each has, and what is expected of them."""
    harness = recorded(APC, ("n1",))
    stages = (Stage(8e6, 4_000.0, memory_mib=1_000),)
    harness.ask(SubmitJob("other", Job("other", stages, 0.0, goal_s=8_000.0, vcpus=4)))
    harness.ask(SubmitJob("s", read(given)))
    harness.obey()
    harness.wait(1_000.0, ("n1",))
    active = harness.controller.cluster.active
    shares = {name: [each.cpu_mhz for each in entry.allotments] for name, entry in active.items()}
    row = harness.ask(Query("q", "job", "j")).data["job"]
    return shares, row["predicted_end_at_s"], row["utility"], row["progress_pct"]


def crashed(given: Given) -> object:
    """Its VM vanishes in the middle: how much is left to do."""
    harness = recorded()
    harness.ask(SubmitJob("s", read(given)))
    harness.obey()
    harness.change("n1", "j#0", cpu_time_s=130.0)
    harness.report("n1")
    harness.guest("n1", "j#0", GuestChange.VANISHED)
    harness.wait(5.0, NODES)
    return harness.ask(Query("q", "job", "j")).data["job"]["done_mcycles"]


def alike(given: Given) -> object:
    """Jobs of the class `render` have been completed; one without stages is submitted."""
    harness = recorded()
    for index in range(6):
        harness.ask(SubmitJob(f"s{index}", job(f"r{index}", job_class="render", work=1e5)))
        harness.obey()
        harness.change("n1", f"r{index}#0", cpu_time_s=100.0)
        harness.report("n1")
        harness.guest("n1", f"r{index}#0", GuestChange.ENDED, harness.controller.cluster.nodes["n1"].events_seen + 1)
        harness.obey()
    return harness.ask(SubmitJob("s", read(given)))


def loaded(given: Given) -> object:
    """Jobs that load the disk and the network run on n1: where this one goes; or why it may not."""
    try:
        wanted = read(given)
    except InvalidInput as error:
        return [problem.where for problem in error.problems]
    harness = recorded(SHARES, interference=InterferenceSettings(network_mbit_per_s=1000.0))
    for resource in (IO, NET):
        each = replace(
            job(f"loads-{resource}", rules=Rules(node_affinity=("n1",))), resource_profile=Loading(((resource, 0.9),))
        )
        harness.ask(SubmitJob(f"s-{resource}", each))
    harness.obey()
    harness.ask(SubmitJob("s", wanted))
    return [order.node for order in harness.orders]


def drawn(given: Given) -> object:
    """The jobs of a load, as a controller would be asked for them, and what becomes of the first."""
    load = given.read(LoadFile)
    jobs = draw(load, 7, "load.toml")
    times = [round(float(each), 6) for each in jobs.arrivals_s[:20]]
    first = job_of_load(load, 7, 0, float(jobs.services_s[0]), 0.0)
    harness = recorded()
    code = harness.ask(SubmitJob("s", first)).code
    return len(jobs.arrivals_s), times, code, harness.orders, first.work_mcycles


def done(given: Given) -> object:
    """Jobs of a load are completed, of which the last one loses its VM: what it has to do again, and whether a job of
    the class `render` needs no stages now."""
    load = given.read(LoadFile)
    harness = recorded()
    for number in range(6):
        each = job_of_load(load, 7, number, 100.0, 0.0)
        harness.ask(SubmitJob(f"s{number}", each))
        harness.obey()
        harness.change("n1", f"{each.name}#0", cpu_time_s=50.0 if number == 5 else 100.0)
        harness.report("n1")
        events_seen = harness.controller.cluster.nodes["n1"].events_seen
        end = GuestChange.VANISHED if number == 5 else GuestChange.ENDED
        harness.guest("n1", f"{each.name}#0", end, events_seen + 1)
        harness.obey()
    harness.wait(5.0, NODES)
    left = harness.ask(Query("q", "job", each.name)).data["job"]["done_mcycles"]
    return left, harness.ask(SubmitJob("s", Job("x", (), 0.0, job_class="render"))).code


WHEN = "1970-01-01T0{}:00:00Z"
LOAD: dict[str, Any] = {
    "arrivals.mean_s": 100,
    "arrivals.duration_s": 3_600,
    "service.mean_s": 600,
    "job.max_mhz": 1_000,
}

TABLE: tuple[Row, ...] = (
    *shown_by(
        begun,
        {
            "name": ("j", "k"),
            "stages[].memory_mib": (1_000, 3_000),
            "instances": (1, 2),
            "vcpus": (1, 2),
            "required_labels": ([], ["ssd"]),
            "template": ("", "guest"),
            "arguments": ([], ["--fast"]),
            "environment": ("", "hpc"),
            "queue": ("", "night"),
            "depends_on": ([], ["other"]),
            "start.after_s": (0, 100),
            "start.at": (WHEN.format(0), WHEN.format(1)),
        },
        STAGE,
    ),
    *shown_by(begun, {"spread": (False, True)}, STAGE | {"instances": 2}),
    *shown_by(begun, {"stages[].min_mhz": (0, 5_000)}, STAGE | {"stages[].max_mhz": 8_000, "vcpus": 8}),
    *shown_by(
        beside,
        {
            "rules.node_affinity": ([], ["n3"]),
            "rules.node_anti_affinity": ([], ["n1"]),
            "rules.affinity": ("", "g"),
            "rules.anti_affinity": ("", "h"),
            "rules.no_migration": (False, True),
            "rules.label_affinity": ([], ["ssd"]),
            "rules.label_anti_affinity": ([], ["old"]),
            "rules.vm_affinity": ([], ["other"]),
            "rules.vm_anti_affinity": ([], ["apart"]),
        },
        STAGE,
    ),
    *shown_by(beside, {"rules.affinity_scope": ("node", "rack")}, STAGE | {"rules.vm_affinity": ["other"]}),
    *shown_by(beside, {"rules.anti_affinity_scope": ("node", "rack")}, STAGE | {"rules.vm_anti_affinity": ["apart"]}),
    *shown_by(
        beside,
        {
            "rules.preferred[].node_affinity": ("n2", "n3"),
            "rules.preferred[].node_anti_affinity": ("n1", "n2"),
            "rules.preferred[].label_affinity": ("ssd", "old"),
            "rules.preferred[].label_anti_affinity": ("rack=a", "ssd"),
            "rules.preferred[].affinity": ("other", "apart"),
            "rules.preferred[].anti_affinity": ("apart", "other"),
        },
        STAGE,
    ),
    *shown_by(
        beside,
        {"rules.preferred[].scope": ("node", "rack")},
        STAGE | {"rules.preferred[].anti_affinity": "apart"},
    ),
    *shown_by(preferred, {"rules.preferred[].weight": (1, 100)}, STAGE | {"rules.preferred[].affinity": "other"}),
    *shown_by(
        contest,
        {
            "goal.at": (WHEN.format(2), WHEN.format(5)),
            "goal.within_s": (5_000, 50_000),
            "goal.factor": (1.2, 20),
        },
        CONTEST,
    ),
    *shown_by(
        shared,
        {"stages[].work_mcycles": (8e6, 4e6), "stages[].max_mhz": (4_000, 1_000), "importance": (1, 5)},
        STAGE | {"stages[].max_mhz": 4_000, "stages[].work_mcycles": 8e6, "vcpus": 4, "goal.within_s": 6_000},
    ),
    *shown_by(crashed, {"checkpoint_mcycles": (0, 60_000)}, STAGE),
    *shown_by(alike, {"class": ("render", "other")}, {"name": "j"}),
    *shown_by(loaded, {"resource_profile.io": (0, 0.5), "resource_profile.net": (0, 0.5)}, STAGE),
    *shown_by(loaded, {"resource_profile.cpu": (0.4, 0.6)}, STAGE | {"resource_profile.io": 0.5}),
)

LOADS: tuple[Row, ...] = (
    *shown_by(
        drawn,
        {
            "arrivals.mean_s": (100, 50),
            "arrivals.duration_s": (3_600, 1_800),
            "arrivals.profile": ([1.0], [2.0, -1e-4]),
            "service.mean_s": (600, 60),
            "service.distribution": ("exponential", "fixed"),
            "job.max_mhz": (1_000, 500),
            "job.name": ("load", "other"),
            "job.queue": ("", "night"),
            "job.environment": ("", "hpc"),
            "job.memory_mib": (0, 1_000),
            "job.vcpus": (1, 2),
            "job.template": ("", "guest"),
        },
        LOAD,
    ),
    *shown_by(done, {"job.class": ("", "render"), "job.checkpoint_mcycles": (0, 1_000)}, LOAD),
    *shown_by(drawn, {"job.min_mhz": (0, 5_000)}, LOAD | {"job.max_mhz": 8_000, "job.vcpus": 8}),
)
