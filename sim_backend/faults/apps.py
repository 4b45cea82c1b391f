"""The web applications of a fault run, and rules on where workloads may run: drawn from the seed in a stream of their
own, so that jobs and faults of a seed stay what they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from shared.values.jobs import Job, Preference, PreferenceKind, Rules
from shared.values.nodes import Node
from shared.values.web_app import Flow, ModelForm, WebApp
from sim_backend.faults.health import Illness, draw_illnesses, draw_probe
from sim_backend.world.demand import steps
from sim_backend.world.web_site import TrueFlow, TrueWeb

FIRST_S, LAST_S = 1_500.0, 4_000.0  # between them applications are changed and removed
_FORMS = (ModelForm.PROCESSOR_SHARING, ModelForm.MULTI_SERVER)


@dataclass(frozen=True, slots=True)
class FaultApp:
    """A web application: submitted, changed to `changed` (None: never), removed (at `removed_s` = inf: when the run is
    over)."""

    app: WebApp
    rates: tuple[tuple[float, float], ...]  # requests/s, from when on
    work_mcycles: float  # of one request, in truth
    seed: int
    submit_s: float
    changed: WebApp | None
    changed_s: float
    removed_s: float
    illnesses: tuple[Illness, ...] = ()

    def truth(self) -> TrueWeb:
        """Return the true behaviour of the application."""
        name, t_min_s = next(((flow.name, flow.t_min_s) for flow in self.app.flows), ("requests", 0.02))
        return TrueWeb((TrueFlow(name, steps(self.rates), self.work_mcycles, t_min_s),), seed=self.seed)


def draw_apps(seed: int, nodes: Sequence[Node]) -> tuple[FaultApp, ...]:
    """Draw one or two applications, the first of which is never removed."""
    rng = Random(f"apps:{seed}")
    lasting = replace(_app(0, nodes, rng), removed_s=math.inf)
    drawn = (lasting, _app(1, nodes, rng)) if rng.random() < 0.6 else (lasting,)
    return tuple(watched(seed, one) for one in drawn)


def watched(seed: int, drawn: FaultApp) -> FaultApp:
    """Return the application with the seed's probe and illnesses."""
    name, changed = drawn.app.name, drawn.changed
    probe = draw_probe(seed, name)
    return replace(
        drawn,
        app=replace(drawn.app, probe=probe),
        changed=replace(changed, probe=probe) if changed is not None else None,
        illnesses=draw_illnesses(seed, name) if probe is not None else (),
    )


def _app(index: int, nodes: Sequence[Node], rng: Random) -> FaultApp:
    work = rng.uniform(15.0, 60.0)
    flow = Flow(
        "browse",
        mean_s=rng.uniform(0.2, 1.0),
        work_mcycles=work if rng.random() < 0.5 else None,
        t_min_s=0.02,
        model=rng.choice(_FORMS),
    )
    app = WebApp(
        f"web{index}",
        (flow,),
        rng.choice((200, 300, 500)),
        max_mhz=rng.choice((400.0, 600.0, 900.0)),  # two of them leave CPU for jobs without a goal, which come last
        min_instances=rng.choice((1, 1, 2)),
        max_instances=rng.choice((2, 3, 4)),
        vcpus=2,
        metrics_url="http://balancer.test/metrics" if rng.random() < 0.3 else "",
        rules=_app_rules(nodes, rng),
    )
    rates = tuple((600.0 * turn, rng.uniform(0.0, 800.0) / work) for turn in range(20))
    changed = replace(app, max_instances=rng.choice((2, 4)), memory_mib=rng.choice((200, 400)))
    return FaultApp(
        app,
        rates,
        work * rng.uniform(0.8, 1.3),
        seed=rng.randrange(1 << 30),
        submit_s=rng.uniform(20.0, 400.0),
        changed=changed if rng.random() < 0.5 else None,
        changed_s=rng.uniform(FIRST_S, LAST_S),
        removed_s=rng.uniform(FIRST_S, LAST_S),
    )


def _app_rules(nodes: Sequence[Node], rng: Random) -> Rules:
    """Draw rules under which two instances always have nodes to run on: n0 is never excluded, and there are five
    nodes."""
    names = [node.name for node in nodes[1:]]
    how = rng.random()
    if how < 0.3:
        return Rules(node_anti_affinity=(rng.choice(names),), anti_affinity="front")
    if how < 0.5:
        return Rules(node_affinity=(nodes[0].name, *rng.sample(names, 3)), no_migration=rng.random() < 0.5)
    return Rules(anti_affinity="front") if how < 0.7 else Rules()


def with_rules(seed: int, jobs: Sequence[Job], nodes: Sequence[Node]) -> tuple[Job, ...]:
    """Return the jobs, some of them with rules. Each could run beside the applications: only jobs without required
    labels get rules, and only jobs of one instance get groups and `no_migration`."""
    rng, scoped = Random(f"rules:{seed}"), Random(f"scopes:{seed}")
    ruled = [replace(job, rules=_job_rules(job, nodes, rng)) for job in jobs]
    names = [job.name for job in jobs]
    return tuple(replace(job, rules=_scoped(job, names, scoped)) for job in ruled)


def _scoped(job: Job, names: Sequence[str], rng: Random) -> Rules:
    """Return a job's rules, some of them about racks, labels and single workloads, and some preferred. There are three
    racks, and three nodes outside any of them."""
    how, other, weight, prefers = rng.random(), rng.choice(names), rng.randint(1, 100), rng.random() < 0.3
    rules = job.rules
    if job.required_labels:
        return rules
    if rules.anti_affinity == "quiet" and how < 0.6:
        rules = replace(rules, anti_affinity_scope="rack")
    if rules == Rules() and how < 0.15:
        rules = Rules(label_anti_affinity=("rack=r1",))
    elif rules == Rules() and how < 0.3 and job.instances == 1 and other != job.name:
        rules = Rules(vm_anti_affinity=(other,), anti_affinity_scope="rack" if how < 0.22 else "node")
    elif rules == Rules() and 0.3 <= how < 0.36 and job.instances == 1:
        rules = Rules(label_affinity=("ssd",))
    if prefers:
        fast = Preference(PreferenceKind.LABEL_AFFINITY, "ssd", weight=weight)
        away = Preference(PreferenceKind.ANTI_AFFINITY, "web0", "rack" if how < 0.5 else "node", 101 - weight)
        rules = replace(rules, preferred=(fast, away))
    return rules


def _job_rules(job: Job, nodes: Sequence[Node], rng: Random) -> Rules:
    names = [node.name for node in nodes]
    how = rng.random()
    if job.required_labels:
        return Rules()
    if how < 0.15:
        return Rules(node_affinity=tuple(rng.sample(names, max(2, job.instances))))
    if how < 0.25:
        return Rules(node_anti_affinity=(rng.choice(names),))
    if job.instances > 1 or how > 0.7:
        return Rules()
    if how < 0.35:
        return Rules(no_migration=True)
    if how < 0.5:
        return Rules(anti_affinity="front")
    if how < 0.6:
        return Rules(anti_affinity="quiet")
    return Rules(affinity="pair") if job.memory_mib <= 600 else Rules()
