"""What an operator wants of a long-lived VM, and what Trimtab may do to keep it so."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from shared.base.errors import InvalidValue
from shared.values.scalars import positive, whole

MOVES_PER_DAY_MAX = 1_000
PAUSE_S_PER_DAY_MAX = 86_400.0
DAY_S = 86_400.0


class OnShutdown(StrEnum):
    """What happens when the guest shuts itself down, or its VM crashes."""

    DOMAIN = "domain"  # what libvirt does by the domain's on_poweroff and on_crash; a VM that is then off stays off
    LEAVE_OFF = "leave-off"  # it stays off: libvirt does not restart it either, whatever the domain says
    RESTART = "restart"  # it is started again


class VmAutomation(StrEnum):
    """How far decisions about one VM are carried out without an operator."""

    OFF = "off"  # no decision changes or moves it
    ADVISE = "advise"
    CONFIRM = "confirm"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class VmTerms:
    """The terms of one adopted VM.

    running: whether it should run; the owner's own `virsh start` or shutdown changes that too. on_shutdown: see there.
    suspend: decisions may save it to disk for others. automation: its own level (None: the cluster's).
    moves_per_day, pause_s_per_day: its disruption budget, the migrations that decisions may order, and the seconds
    that these may pause it, within 24 hours (None: no limit). post_copy: a migration that does not converge may
    switch to post-copy, where a failure of either node stops the VM. failover: it is restarted on another node when
    its own is proven off; then Trimtab alone starts it with its host, and libvirt's autostart of it is off.
    """

    running: bool = True
    on_shutdown: OnShutdown = OnShutdown.DOMAIN
    suspend: bool = False
    automation: VmAutomation | None = None
    moves_per_day: int | None = None
    pause_s_per_day: float | None = None
    post_copy: bool = False
    failover: bool = False

    def __post_init__(self) -> None:
        if self.moves_per_day == 0:
            raise InvalidValue("moves_per_day", 0, "1 or more; `rules.no_migration` forbids every migration")
        if self.moves_per_day is not None:
            whole("moves_per_day", self.moves_per_day, 1, MOVES_PER_DAY_MAX)
        if self.pause_s_per_day is not None:
            positive("pause_s_per_day", self.pause_s_per_day)
            if self.pause_s_per_day > PAUSE_S_PER_DAY_MAX:
                raise InvalidValue("pause_s_per_day", self.pause_s_per_day, f"at most {PAUSE_S_PER_DAY_MAX:g}")


CLEARABLE = ("automation", "moves_per_day", "pause_s_per_day")  # terms that may have no value


@dataclass(frozen=True, slots=True)
class TermChanges:
    """Changes of some terms of an adopted VM; None leaves a term as it is. `clear`: those that have no value from then
    on, of `CLEARABLE`."""

    on_shutdown: OnShutdown | None = None
    suspend: bool | None = None
    automation: VmAutomation | None = None
    moves_per_day: int | None = None
    pause_s_per_day: float | None = None
    post_copy: bool | None = None
    failover: bool | None = None
    clear: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.clear:
            if name not in CLEARABLE:
                raise InvalidValue("clear", name, "one of " + ", ".join(CLEARABLE))
            if getattr(self, name) is not None:
                raise InvalidValue(name, getattr(self, name), "no value: it is cleared at once")
        self.applied(VmTerms())

    @classmethod
    def of(cls, terms: VmTerms) -> TermChanges:
        """Return the changes that make any terms these, but for `running`."""
        given = {key: value for key in _TERMS if (value := getattr(terms, key)) is not None}
        return cls(**given, clear=tuple(key for key in CLEARABLE if getattr(terms, key) is None))

    def applied(self, terms: VmTerms) -> VmTerms:
        """Return the terms with these changes. Raises `InvalidValue` for a term that cannot be."""
        changed: dict[str, Any] = {key: value for key in _TERMS if (value := getattr(self, key)) is not None}
        cleared: dict[str, Any] = dict.fromkeys(self.clear)
        return replace(terms, **changed, **cleared)


_TERMS = tuple(one.name for one in fields(TermChanges) if one.name != "clear")
