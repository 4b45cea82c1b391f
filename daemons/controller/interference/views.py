"""The view of profiles: how jobs load nodes, how fast node types are, and which standard jobs have run."""

from __future__ import annotations

import math
from typing import Any

from daemons.controller.interference.profiles import InterferenceProfiles, is_stored
from daemons.controller.interference.standard_jobs import Run, StandardJobs
from daemons.models.loading_history import RESOURCES
from daemons.models.loading_profiler import Profile, pace_of, servers_of
from shared.values.load_vector import StandardJob

Row = dict[str, Any]


def profiles_view(profiles: InterferenceProfiles, probes: StandardJobs, subject: str, limit: int, now_s: float) -> Row:
    """Return the profiles whose class begins with `subject`, on every node type that exists or was measured."""
    kinds = sorted(
        {node.inventory.node_type for node in profiles.cluster.nodes.values() if node.inventory is not None}
        | profiles.paces.keys()
    )
    keys = dict.fromkeys(profiles.keys())
    keys |= dict.fromkeys((name, kind) for name, _ in list(keys) if is_stored(name) for kind in kinds)
    found = sorted(key for key in keys if key[0].startswith(subject) and profiles.profile(*key) is not None)
    runs = [*probes.in_progress.values(), *reversed(probes.ended)]
    return {
        "total": len(found),
        "profiles": [_profile(profiles, name, kind, now_s) for name, kind in found[:limit]],
        "node_types": [_node_type(profiles, kind, now_s) for kind in kinds],
        "runs": [_run(run) for run in runs[:limit]],
    }


def _profile(profiles: InterferenceProfiles, subject: str, node_type: str, now_s: float) -> Row:
    profile, history = profiles.profile(subject, node_type), profiles.history(subject, node_type)
    assert profile is not None
    return {
        "class": subject,
        "node_type": node_type,
        "status": profile.status.value,
        "loading": {name: round(part, 6) for name, part in zip(RESOURCES, profile.vector, strict=True)},
        "half_width": _by_resource(profile, "half_width"),
        "source": _by_resource(profile, "source"),
        "observations": profile.observations,
        "age_s": max(0.0, now_s - profile.measured_s) if profile.measured_s else None,
        "converted_from": profile.origin,
        "scaled": profile.scaled,
        "drifts": history.drifts,
        "drifted_at_s": history.drifted_s,
    }


def _by_resource(profile: Profile, field: str) -> Row:
    values = {name: getattr(part, field) for name, part in zip(RESOURCES, profile.parts, strict=True)}
    return {name: None if value in ("", math.inf) else value for name, value in values.items()}


def _node_type(profiles: InterferenceProfiles, kind: str, now_s: float) -> Row:
    paces = profiles.paces.get(kind, ())
    return {
        "node_type": kind,
        "units_per_s": {job.value: pace_of(paces, job.value) for job in StandardJob},
        "servers": {
            job.value: servers_of(paces, job.value) if _several(profiles, kind, job) else None for job in StandardJob
        },
        "runs": {job.value: sum(each.job == job.value for each in paces) for job in StandardJob},
        "age_s": max(0.0, now_s - paces[-1].at_s) if paces else None,
    }


def _several(profiles: InterferenceProfiles, kind: str, job: StandardJob) -> bool:
    """Return whether several copies have run together; a single copy shows nothing about servers."""
    counts = {each.copies for each in profiles.paces.get(kind, ()) if each.job == job.value}
    return 1 in counts and len(counts) > 1


def _run(run: Run) -> Row:
    return {
        "request": run.request,
        "node": run.node,
        "standard": run.run.job.value,
        "copies": run.run.copies,
        "run_s": run.run.run_s,
        "job": run.job,
        "started_at_s": run.started_s,
        "ended_at_s": run.ended_s,
        "ok": run.ok if run.ended_s is not None else None,
        "detail": run.detail,
    }
