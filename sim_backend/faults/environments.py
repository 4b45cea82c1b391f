"""The environments of a fault run: a batch and a web environment that share their nodes, one or two that stand alone,
what their owners ask for meanwhile, and what goes wrong while nodes change hands. Drawn from the seed in a stream of
their own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Any

from shared.protocol.operator_messages import (
    ActivateEnvironment,
    ConsentEnvironment,
    CreateEnvironment,
    DeactivateEnvironment,
    DestroyEnvironment,
    Request,
    ResizeEnvironment,
)
from shared.values.agreement import Agreement, BatchTerms, Granularity, OnReclaim, Scheduling, VmTemplate, WorkloadType
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.jobs import Job, Rules, Stage
from shared.values.nodes import Node
from shared.values.web_app import WebApp
from sim_backend.faults.apps import FaultApp

NODES = 12  # seven of them within lower bounds, the others for what is in no environment, and to borrow
BATCH, WEB, LAB, VMS = "night", "front", "lab", "boxes"
SITE = "site"
CREATED_S, ACTIVATED_S, JOBS_FROM_S = 30.0, 35.0, 60.0
PEAK_INSTANCES = 4
SETUP_TRIES = 3
TEMPLATE = VmTemplate("box", 1, 600, 500.0)
BOXED_S = 600.0
_SHARES = ((0.40, BATCH), (0.65, LAB), (0.75, VMS))  # of the jobs; the rest is in no environment


class HandoverFault(StrEnum):
    """What goes wrong while nodes change hands, in the order in which seeds rotate through it."""

    SETUP_FAILS = "setup-fails"
    SETUP_FAILS_FOR_GOOD = "setup-fails-for-good"
    SETUP_HANGS = "setup-hangs"
    AGENT_KILLED_IN_SETUP = "agent-killed-in-setup"
    HOST_DIES_IN_SETUP = "host-dies-in-setup"
    CONTROLLER_KILLED_IN_HANDOVER = "controller-killed-in-handover"


@dataclass(frozen=True, slots=True)
class HandoverIncident:
    """A fault that hits from `at_s` on, as soon as a node is so far, if that is before `until_s`. number: which node,
    and how often."""

    kind: HandoverFault
    at_s: float
    until_s: float
    number: int


@dataclass(frozen=True, slots=True)
class Ask:
    """What an operator asks for at `at_s`."""

    at_s: float
    request: Request


@dataclass(frozen=True, slots=True)
class FaultEnvironments:
    """Agreements as they are created; what is asked for besides; which jobs are whose; the application of the web
    environment. `destroyed`: the environment that is destroyed before the run is over ("": none)."""

    agreements: tuple[Agreement, ...]
    asks: tuple[Ask, ...]
    incidents: tuple[HandoverIncident, ...]
    homes: Mapping[str, str]
    app: FaultApp
    destroyed: str


def draw_environments(seed: int, nodes: Sequence[Node], jobs: Sequence[Job], until_s: float) -> FaultEnvironments:
    """Draw the environments of a seed. All requests and faults come before `until_s`."""
    rng = Random(f"environments:{seed}")
    agreements = _agreements(rng)
    names = [agreement.name for agreement in agreements]
    destroyed = LAB if rng.random() < 0.3 else ""
    return FaultEnvironments(
        agreements,
        tuple(sorted(_asks(agreements, destroyed, until_s, rng), key=lambda ask: ask.at_s)),
        tuple(_incident(seed, turn, until_s, rng) for turn in range(max(4, round(until_s / 1_000.0)))),
        {job.name: home for job in jobs if (home := _home(job, names, rng))},
        _site(nodes[0], until_s, rng),
        destroyed,
    )


def at_home(job: Job, environment: str) -> Job:
    """Return the job as submitted to an environment, or to none: without rules that the nodes might not satisfy and, in
    an environment, no larger than the environment's final size."""
    plain = replace(job, rules=Rules(), required_labels=())
    if not environment:
        return plain
    submit_s = max(job.submit_s, JOBS_FROM_S)
    changed = replace(plain, environment=environment, submit_s=submit_s, desired_start_s=submit_s)
    if environment == VMS:
        changed = replace(changed, stages=tuple(_boxed(one) for one in job.stages))
    return replace(changed, instances=min(job.instances, 2))


def _boxed(stage: Stage) -> Stage:
    """Return the stage within the limits of the template's VM, and short enough for the few VMs to complete all
    jobs."""
    run_s = min(stage.work_mcycles / stage.max_mhz, BOXED_S)
    return Stage(run_s * TEMPLATE.max_mhz, TEMPLATE.max_mhz, 0.0, TEMPLATE.memory_mib)


def _home(job: Job, names: Sequence[str], rng: Random) -> str:
    share = rng.random()
    home = next((name for most, name in _SHARES if share < most), "")
    return home if home in names and job.instances < 3 else ""


def _agreements(rng: Random) -> tuple[Agreement, ...]:
    model = rng.choice(("fb", "fb", "flb-nub"))
    lease_s = rng.choice((300.0, 600.0, 900.0))
    batch, web = rng.choice((2, 3)), rng.choice((1, 2))
    bounded = model == "flb-nub" and rng.random() < 0.5
    notice_s = rng.choice((0.0, 120.0, 600.0))
    pair: dict[str, Any] = {"owner": "kim", "model": model, "lease_s": lease_s, "notice_s": notice_s}
    found = [
        Agreement(
            BATCH,
            workload=WorkloadType.BATCH,
            lower=batch,
            upper=batch + 2 if bounded else None,
            coordinated_with=WEB,
            setup=_setup(rng),
            scheduling=_scheduling(rng),
            batch=_terms(rng),
            **pair,
        ),
        Agreement(
            WEB,
            workload=WorkloadType.WEB,
            lower=web,
            upper=web + 2 if bounded else None,
            setup=_setup(rng),
            scheduling=_scheduling(rng),
            **pair,
        ),
        Agreement(
            LAB,
            "lee",
            WorkloadType.BATCH,
            lower=2,
            model=rng.choice(("flb-nub", "flb-nub", "fb", "dedicated")),
            lease_s=rng.choice((300.0, 450.0)),
            setup=_setup(rng),
            scheduling=_scheduling(rng),
            batch=_terms(rng),
        ),
    ]
    if rng.random() < 0.4:
        terms = _terms(rng)
        found.append(
            Agreement(
                VMS,
                "lee",
                WorkloadType.BATCH,
                lower=2,
                granularity=Granularity.VM,
                template=TEMPLATE,
                lease_s=300.0,
                batch=terms,
            )
        )
    return tuple(found)


def _terms(rng: Random) -> BatchTerms:
    return BatchTerms(on_reclaim=OnReclaim.KILL if rng.random() < 0.25 else OnReclaim.SUSPEND)


def _scheduling(rng: Random) -> Scheduling:
    return Scheduling(rng.choice(("first-fit", "first-fit", "edf", "apc")))


def _setup(rng: Random) -> Setup:
    policy = rng.choice((SetupPolicy.NOOP, SetupPolicy.WIPE, SetupPolicy.WIPE, SetupPolicy.EXEC, SetupPolicy.EXEC))
    return Setup(
        policy,
        "prepare" if policy is SetupPolicy.EXEC else "",
        rng.choice((90.0, 200.0)),
        acquire=rng.random() < 0.9,
        release=rng.random() < 0.9,
    )


def _site(node: Node, until_s: float, rng: Random) -> FaultApp:
    """Return an application without a goal, one instance of which fills a node. Its load varies, and needs one instance
    from `until_s` on."""
    app = WebApp(
        SITE,
        (),
        600,
        max_mhz=node.cpu_mhz,
        min_instances=1,
        max_instances=PEAK_INSTANCES,
        vcpus=node.cores,
        environment=WEB,
    )
    work = rng.uniform(15.0, 60.0)
    step_s = rng.uniform(500.0, 900.0)
    times = [turn * step_s for turn in range(math.ceil(until_s / step_s))]
    rates = [(at_s, _rate(rng.choice((1, 1, 2, 3, 4)), node, work)) for at_s in times]
    return FaultApp(
        app,
        (*rates, (until_s, _rate(1, node, work))),
        work,
        seed=rng.randrange(1 << 30),
        submit_s=rng.uniform(JOBS_FROM_S, 200.0),
        changed=None,
        changed_s=math.inf,
        removed_s=math.inf,
    )


def _rate(instances: int, node: Node, work_mcycles: float) -> float:
    """Requests/s for which the adjustment policy keeps so many instances."""
    return 0.8 * (instances - 0.5) * node.cpu_mhz / work_mcycles


def _asks(agreements: Sequence[Agreement], destroyed: str, until_s: float, rng: Random) -> list[Ask]:
    found = [Ask(CREATED_S, CreateEnvironment(f"create-{one.name}", one)) for one in agreements]
    found += [Ask(ACTIVATED_S, ActivateEnvironment(f"activate-{one.name}", one.name)) for one in agreements]
    if destroyed:
        at_s = rng.uniform(0.4, 0.9) * until_s
        found.append(Ask(at_s, DestroyEnvironment(f"destroy-{destroyed}", destroyed)))
    for turn in range(max(2, round(until_s / 1_500.0))):
        found += _whim(turn, agreements, until_s, rng)
    return found


def _whim(turn: int, agreements: Sequence[Agreement], until_s: float, rng: Random) -> list[Ask]:
    """Something that an owner does, and undoes before `until_s`."""
    from_s, length_s = rng.uniform(200.0, until_s - 400.0), rng.uniform(30.0, 900.0)
    back_s = min(from_s + length_s, until_s)
    agreement = rng.choice(agreements)
    name = agreement.name
    match rng.choice(("resize", "pause", "part")):
        case "resize":
            lower, upper = agreement.lower, agreement.upper
            least = max(1, lower - 1)
            return [
                Ask(from_s, ResizeEnvironment(f"resize-{turn}", name, rng.choice((least, lower + 1)), upper)),
                Ask(back_s, ResizeEnvironment(f"resize-back-{turn}", name, lower, upper)),
            ]
        case "pause":
            return [
                Ask(from_s, DeactivateEnvironment(f"deactivate-{turn}", name)),
                Ask(back_s, ActivateEnvironment(f"activate-again-{turn}", name)),
            ]
    return [
        Ask(from_s, ConsentEnvironment(f"withdraw-{turn}", BATCH, WEB, False)),
        Ask(back_s, ConsentEnvironment(f"consent-{turn}", BATCH, WEB, True)),
    ]


def _incident(seed: int, turn: int, until_s: float, rng: Random) -> HandoverIncident:
    kinds = list(HandoverFault)
    at_s = rng.uniform(ACTIVATED_S, until_s - 200.0) if turn else ACTIVATED_S + 1.0
    kind = kinds[(seed + turn) % len(kinds)]
    return HandoverIncident(kind, at_s, until_s, rng.randint(0, 12))
