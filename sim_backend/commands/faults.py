"""`trimtab sim faults`: the closed loop under scripted faults, one world per seed, every invariant checked."""

from __future__ import annotations

from collections import Counter

import click
from rich.console import RenderableType
from rich.progress import Progress
from rich.text import Text

from daemons.capacity.process_pool import run_all
from daemons.cli.numbers import Whole, seed_range
from daemons.cli.output import emit, messages, output_option, say, two_columns
from daemons.cli.tables import Fitted, stacked
from shared.base.clock import perf_s
from shared.ports.plugins import find_policy
from sim_backend.faults.environments import NODES as ENVIRONMENT_NODES
from sim_backend.faults.run import RunKind, SeedOutcome, replay_command, run_script
from sim_backend.faults.script import NODES_MIN

NODES_MAX = 200
HOURS_MIN, HOURS_MAX = 2, 168
MANY = 8  # seeds that are worth processes of their own


@click.command()
@click.option("--seeds", type=seed_range, required=True, metavar="A-B", help="Range of seeds, both included.")
@click.option(
    "--nodes", type=Whole(NODES_MIN, NODES_MAX), default=NODES_MIN, show_default=True, help="Nodes per world."
)
@click.option("--policy", help="Placement policy.  [default: seeds alternate between several]")
@click.option(
    "--environments",
    is_flag=True,
    help=f"Let environments share the nodes, at least {ENVIRONMENT_NODES}; setups and owners fail too.",
)
@click.option(
    "--existing-vms",
    is_flag=True,
    help="Adopted VMs in every seed, beside few jobs: their owners, hosts, leases and fences fail too.",
)
@click.option(
    "--hours",
    type=Whole(HOURS_MIN, HOURS_MAX),
    default=HOURS_MIN,
    show_default=True,
    help="With --environments: duration of the faults in hours.",
)
@output_option
@click.pass_context
def faults(
    context: click.Context,
    seeds: range,
    nodes: int,
    policy: str | None,
    environments: bool,
    existing_vms: bool,
    hours: int,
) -> None:
    """Run the real controller and agents under faults of messages, processes, operations and hosts, and check
    invariants.

    No VM may be doubled or lost, no node overcommitted, no job forgotten. Exit status 1 when an invariant does not
    hold.

    \b
    Example:
      trimtab sim faults --seeds 0-19
    """
    if policy is not None:
        find_policy("placement", policy)
    if hours > HOURS_MIN and not environments:
        raise click.UsageError("--hours needs --environments")
    if existing_vms and environments:
        raise click.UsageError("--existing-vms and --environments exclude each other")
    kind = RunKind(nodes, policy, environments, hours=hours, existing_vms=existing_vms)
    begun_s = perf_s()
    counts: Counter[str] = Counter()
    violations: list[dict[str, object]] = []
    for outcome in _outcomes(seeds, kind):
        counts.update(outcome.faults)
        for violation in outcome.violations:
            violations.append(
                {
                    "seed": outcome.seed,
                    "invariant": violation.invariant,
                    "at_s": violation.at_s,
                    "replay": replay_command(outcome.seed, kind),
                    "detail": violation.detail,
                }
            )
        if outcome.crash:
            say(f"seed {outcome.seed}:\n{outcome.crash}")
    values = {
        "runs": len(seeds),
        "faults": dict(sorted(counts.items())),
        "violations": violations,
        "wall_s": perf_s() - begun_s,
    }
    emit(values, lambda: _for_people(len(seeds), counts, violations))
    if violations:
        context.exit(1)


def _outcomes(seeds: range, kind: RunKind) -> list[SeedOutcome]:
    """Return the outcomes in the order of the seeds; many seeds run on all processors."""
    console = messages()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task("seeds", total=len(seeds))
        work = [(_outcome, (seed, kind)) for seed in seeds]
        return run_all(work, None if len(seeds) >= MANY else 1, lambda done: shown.update(task, completed=done))


def _outcome(seed: int, kind: RunKind) -> SeedOutcome:
    return run_script(kind.script(seed))


def _for_people(runs: int, counts: Counter[str], violations: list[dict[str, object]]) -> RenderableType:
    summary = two_columns(f"{runs} runs, {len(violations)} violations", dict(sorted(counts.items())))
    if not violations:
        return summary
    keys = ("seed", "invariant", "at_s", "detail")
    rows = [[str(violation[key]) for key in keys] for violation in violations]
    again = (Text(str(command)) for command in dict.fromkeys(violation["replay"] for violation in violations))
    return stacked(summary, Fitted("violations", ("seed", "invariant", "at s", "what"), rows), *again)
