"""How a job loads the resources of a node, and the standard jobs by which that is measured (d-factor.txt, 3.2, 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shared.base.errors import InvalidValue
from shared.values.scalars import check_name, positive, whole

CPU, IO, NET = "cpu", "io", "net"
RESOURCES_MAX = 64
SUM_ERROR_MAX = 1e-9
STANDARD_RUN_S_MAX = 600.0
STANDARD_COPIES_MAX = 64


@dataclass(frozen=True, slots=True)
class Loading:
    """A loading vector: for each resource the part (0..1) of its time alone on a node that a job, or each of its
    instances, spends at it (eq. 1). They sum to 1 at most (eq. 2); what is left is idle. A resource that is not named
    is not used; no resource at all: nothing is known."""

    parts: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if len(self.parts) > RESOURCES_MAX:
            raise InvalidValue("loading", len(self.parts), f"at most {RESOURCES_MAX} resources")
        for resource, part in self.parts:
            check_name("loading", resource)
            if not 0.0 <= part <= 1.0:
                raise InvalidValue(f"loading.{resource}", part, "0 to 1")
        if len({resource for resource, _ in self.parts}) < len(self.parts):
            raise InvalidValue("loading", [resource for resource, _ in self.parts], "each resource once")
        if sum(part for _, part in self.parts) > 1.0 + SUM_ERROR_MAX:
            raise InvalidValue("loading", sum(part for _, part in self.parts), "parts that sum to 1 at most")

    def __bool__(self) -> bool:
        return bool(self.parts)

    def part(self, resource: str) -> float:
        """Return the part of one resource."""
        return next((part for name, part in self.parts if name == resource), 0.0)


class StandardJob(StrEnum):
    """A job that uses one resource and nothing else, without a pause (section 4.2)."""

    CPU = "cpu"  # arithmetic on whole numbers
    IO = "io"  # direct reads at random places of a file, past the page cache


@dataclass(frozen=True, slots=True)
class StandardRun:
    """To run `copies` of a standard job side by side for `run_s` seconds, at most `STANDARD_RUN_S_MAX`."""

    job: StandardJob
    run_s: float
    copies: int = 1

    def __post_init__(self) -> None:
        positive("run_s", self.run_s)
        if self.run_s > STANDARD_RUN_S_MAX:
            raise InvalidValue("run_s", self.run_s, f"at most {STANDARD_RUN_S_MAX:g}")
        whole("copies", self.copies, 1, STANDARD_COPIES_MAX)


@dataclass(frozen=True, slots=True)
class StandardPace:
    """What one copy did: units of its work (a unit is the same on every host), in how many seconds, of which how many
    on the CPU. Units per second are its pace; the pace alone over that beside others is its dilation."""

    units: float
    elapsed_s: float
    cpu_s: float
