"""A VM that does not exist yet, of which somebody asks where it would go; checked when made."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.values.jobs import Rules, check_labels
from shared.values.scalars import not_negative, whole

COPIES_MAX = 500
"""The most VMs of one kind that are asked about, or counted."""
VCPUS_MAX = 4096
MEMORY_MIB_MAX = 1 << 40


@dataclass(frozen=True, slots=True)
class NewVm:
    """A VM of `vcpus` (1 to 4096) and `memory_mib` (1 to 2^40, without overhead). cpu_mhz: CPU that must be free for it
    (0: it shares what there is). required_labels: labels that its node must have. Raises `InvalidValue`."""

    vcpus: int
    memory_mib: int
    cpu_mhz: float = 0.0
    required_labels: tuple[str, ...] = ()
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        whole("vcpus", self.vcpus, 1, VCPUS_MAX)
        whole("memory_mib", self.memory_mib, 1, MEMORY_MIB_MAX)
        not_negative("cpu_mhz", self.cpu_mhz)
        check_labels(self.required_labels, self.rules)
