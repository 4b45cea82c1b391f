"""The keys of a file for `trimtab sim place`, and what each may hold; docs/snapshot.schema.json says the same."""

from __future__ import annotations

from collections.abc import Mapping

from daemons.capacity.json_file import Field, flag, number, one_of, rows, table, text, texts, whole
from shared.values.jobs import INSTANCES_MAX, ConstraintKind
from shared.values.scalars import NAME_LENGTH_MAX
from shared.values.web_app import ModelForm

AMOUNT_MAX = 1e15
SECONDS_MAX = 1e12
SPEED_MIN = 0.001
SEATS_MAX = 10_000
SERVERS_MAX = 1024
MODELS = ("off", "formula", "product-form", "auto")
STATES = ("waiting", "running", "suspended")
NAME = rf"[A-Za-z0-9_-]{{1,{NAME_LENGTH_MAX}}}"
NAME_WORDS = f"1 to {NAME_LENGTH_MAX} ASCII letters, digits, '-' or '_'"
LABEL = r"\S{1,128}"
LABEL_WORDS = "1 to 128 printable characters without spaces"

Fields = Mapping[str, Field]


def _time(default: float | None) -> Field:
    return number(-SECONDS_MAX, SECONDS_MAX, default)


FILE: Fields = {
    "now_s": _time(0.0),
    "cycle_s": number(0.001, SECONDS_MAX, 600.0),
    "operation_costs": Field(
        "none, paper or an object of four numbers", lambda raw: isinstance(raw, str | dict), "none"
    ),
    "vm_overhead_mib": number(0, AMOUNT_MAX, 0.0),
    "nodes": rows(),
    "jobs": rows(()),
    "web_apps": rows(()),
    "constraints": rows(()),
    "placement": table(None),
    "limits": table(None),
    "interference": one_of(MODELS, "auto"),
}
COST: Fields = {
    "start_s": number(0, SECONDS_MAX),
    "suspend_s_per_mib": number(0, SECONDS_MAX),
    "resume_s_per_mib": number(0, SECONDS_MAX),
    "migrate_s_per_mib": number(0, SECONDS_MAX),
}
LIMITS: Fields = {"changes_max": whole(1, INSTANCES_MAX, None)}
NODE: Fields = {
    "name": text(NAME, NAME_WORDS),
    "cpu_mhz": number(0, AMOUNT_MAX),
    "memory_mib": number(0, AMOUNT_MAX),
    "cores": whole(1, 65_536, None),
    "core_mhz": number(SPEED_MIN, AMOUNT_MAX, None),
    "labels": texts(LABEL, LABEL_WORDS, ()),
    "draining": flag(False),
    "servers": table(None),
}
JOB: Fields = {
    "name": text(NAME, NAME_WORDS),
    "state": one_of(STATES, "waiting"),
    "node": text(NAME, NAME_WORDS, None),
    "image_node": text(NAME, NAME_WORDS, None),
    "work_mcycles": number(0, AMOUNT_MAX, None),
    "done_mcycles": number(0, AMOUNT_MAX, 0.0),
    "max_mhz": number(SPEED_MIN, AMOUNT_MAX, None),
    "min_mhz": number(0, AMOUNT_MAX, None),
    "memory_mib": number(0, AMOUNT_MAX, None),
    "stages": rows(None),
    "submit_s": _time(None),
    "desired_start_s": _time(None),
    "goal_s": _time(None),
    "vcpus": whole(1, 4096, None),
    "instances": whole(1, INSTANCES_MAX, 1),
    "separate": flag(False),
    "importance": number(0.001, 1e6, 1.0),
    "needs": texts(LABEL, LABEL_WORDS, ()),
    "loading": table(None),
}
STAGE: Fields = {
    "work_mcycles": number(0, AMOUNT_MAX),
    "max_mhz": number(SPEED_MIN, AMOUNT_MAX, None),
    "min_mhz": number(0, AMOUNT_MAX, None),
    "memory_mib": number(0, AMOUNT_MAX, None),
}
WEB: Fields = {
    "name": text(NAME, NAME_WORDS),
    "memory_mib": number(0, AMOUNT_MAX),
    "min_instances": whole(0, SEATS_MAX, 1),
    "max_instances": whole(1, SEATS_MAX, 1),
    "placed_on": texts(NAME, NAME_WORDS, None),
    "goal_relative": table(None),
    "flows": rows(None),
    "max_mhz": number(SPEED_MIN, AMOUNT_MAX, None),
    "total_max_mhz": number(SPEED_MIN, AMOUNT_MAX, None),
    "vcpus": whole(1, 4096, None),
    "importance": number(0.001, 1e6, 1.0),
    "needs": texts(LABEL, LABEL_WORDS, ()),
}
GOAL_RELATIVE: Fields = {
    "t_min": number(0, AMOUNT_MAX, 0.0),
    "c_mhz": number(SPEED_MIN, AMOUNT_MAX),
    "load_mhz": number(0, AMOUNT_MAX, 0.0),
    "max_mhz": number(SPEED_MIN, AMOUNT_MAX, None),
}
FLOW: Fields = {
    "name": text(NAME, NAME_WORDS),
    "mean_s": number(1e-9, SECONDS_MAX, None),
    "percentile": number(1e-9, 1.0 - 1e-9, None),
    "percentile_s": number(1e-9, SECONDS_MAX, None),
    "throughput_per_s": number(1e-9, AMOUNT_MAX, None),
    "model": one_of([form.value for form in ModelForm], ModelForm.PROCESSOR_SHARING.value),
    "t_min_s": number(0, SECONDS_MAX, 0.0),
    "c_mhz_s": number(1e-9, AMOUNT_MAX, None),
    "load_mhz": number(0, AMOUNT_MAX, None),
    "rate_per_s": number(0, AMOUNT_MAX, None),
    "work_mcycles": number(1e-9, AMOUNT_MAX, None),
}
CONSTRAINT: Fields = {
    "kind": one_of([kind.value for kind in ConstraintKind]),
    "members": texts(NAME, NAME_WORDS),
    "nodes": texts(NAME, NAME_WORDS, ()),
}
ALLOTMENT: Fields = {"node": text(NAME, NAME_WORDS), "cpu_mhz": number(0, AMOUNT_MAX)}
