"""The true behaviour of the guests of a fake cluster, given by the template string of their job.

`fake:work=600000;max=1000;checkpoint=0;instances=3`: work in Mcycles per instance (0 or above), the maximum MHz that an
instance can use (above 0; omitted: no limit), Mcycles between its own saves (0: never) and the number of instances that
run together (1 when omitted). Without a template the guest stays idle and never ends.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from shared.base.errors import InvalidValue
from shared.values.actions import Action, ActionKind
from shared.values.jobs import INSTANCES_MAX, workload_of
from shared.values.scalars import check_name
from sim_backend.world.world import World

PREFIX = "fake:"
FORM = "fake:work=MCYCLES[;max=MHZ][;checkpoint=MCYCLES][;instances=COUNT]"
_NUMBER = re.compile(r"\d{1,18}(\.\d{1,18})?(e[+-]?\d{1,2})?", re.ASCII)
_COUNT = re.compile(r"\d{1,6}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Guest:
    """The truth of a job's guests; `max_mhz` inf: no limit of their own."""

    work_mcycles: float
    max_mhz: float = math.inf
    checkpoint_mcycles: float = 0.0
    instances: int = 1


def parse_guest(template: str) -> Guest | None:
    """Return the guest that a template describes, None for an empty one. Raises InvalidValue for anything else than
    `FORM`."""
    if not template:
        return None
    if not template.startswith(PREFIX):
        raise InvalidValue("template", template, f"nothing, or {FORM}")
    found: dict[str, str] = {}
    for part in template.removeprefix(PREFIX).split(";"):
        key, _, text = part.partition("=")
        if key not in ("work", "max", "checkpoint", "instances") or key in found:
            raise InvalidValue("template", template, f"each key at most once: {FORM}")
        found[key] = text
    if "work" not in found:
        raise InvalidValue("template", template, f"a work: {FORM}")
    return Guest(
        _number("work", found["work"]),
        _number("max", found["max"], above_zero=True) if "max" in found else math.inf,
        _number("checkpoint", found.get("checkpoint", "0")),
        _count(found.get("instances", "1")),
    )


def _number(key: str, text: str, above_zero: bool = False) -> float:
    expected = "a number above 0" if above_zero else "a number, 0 or above"
    if not _NUMBER.fullmatch(text) or (above_zero and float(text) == 0.0):
        raise InvalidValue(f"template: {key}", text, expected)
    return float(text)


def _count(text: str) -> int:
    if not _COUNT.fullmatch(text) or not 1 <= int(text) <= INSTANCES_MAX:
        raise InvalidValue("template: instances", text, f"a whole number from 1 to {INSTANCES_MAX}")
    return int(text)


class Guests:
    """Gives the world a job's task when the first of its instances is started."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._templates: dict[str, tuple[str, Guest]] = {}

    def work(self, job: str, template: str) -> None:
        """Set the work of a job's guests, regardless of their specifications. Raises InvalidValue for an empty or
        invalid template, an invalid job name, or a job that is known with another template."""
        check_name("job", job)
        guest = parse_guest(template)
        if guest is None:
            raise InvalidValue("template", template, FORM)
        known = self._templates.get(job)
        if known is not None:
            if known[1] != guest:
                raise InvalidValue("template", template, f"{known[0]!r}, as {job} began with")
            return
        stages = [(guest.work_mcycles, guest.max_mhz)]
        self._world.add_task(job, stages, guest.instances, guest.checkpoint_mcycles)
        self._templates[job] = (template, guest)

    def prepare(self, action: Action) -> str:
        """Create the task of a VM that is about to start. Return why its template cannot be used, "" when it can."""
        if action.kind is not ActionKind.START or action.spec is None or not action.spec.template:
            return ""
        try:
            job, index = workload_of(action.spec.vm)
            self.work(job, action.spec.template)
        except InvalidValue as error:
            return str(error)
        instances = self._templates[job][1].instances
        return "" if index < instances else f"template: {job} has {instances} instances, this is number {index}"
