"""How standard jobs run on a host of the simulated world: by its true speed, beside what its guests use."""

from __future__ import annotations

from shared.values.load_vector import StandardJob, StandardPace, StandardRun
from sim_backend.world.disks import progress
from sim_backend.world.world import World

UNIT_MCYCLES = 2.0
READ_MCYCLES = 0.2  # that the host's CPU spends on a read
READS_PER_S = 1000.0  # one after the other


def paces(world: World, host: str, run: StandardRun) -> tuple[StandardPace, ...]:
    """Return the result of each copy in `run.run_s` seconds, while the host's guests keep their current use. A copy on
    the CPU has at most one core; where cores are short, copies and guests share them equally. Copies on the disk wait
    for each other and for the guests."""
    core_mhz, capacity_mhz, parts, servers = world.standing(host)
    cores = capacity_mhz / core_mhz
    used_cores = cores * world.used_frac(host)
    if run.job is StandardJob.CPU:
        core = min(1.0, max(cores - used_cores, cores * run.copies / (run.copies + used_cores)) / run.copies)
        return (StandardPace(core * core_mhz * run.run_s / UNIT_MCYCLES, run.run_s, core * run.run_s),) * run.copies
    reads = READS_PER_S * run.run_s * progress([*parts, *[1.0] * run.copies], servers)[-1]
    return (StandardPace(reads, run.run_s, min(run.run_s, reads * READ_MCYCLES / core_mhz)),) * run.copies
