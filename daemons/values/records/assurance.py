"""What the controller keeps in the store of environments' demand, and of how it was served."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from shared.policy_api.admission import Ledger

RECENT = -1  # stands for a slot: the newest instances of all slots


class DemandDay(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The largest demand in each slot instance of a local day (-1: not observed). day: since 1970-01-01."""

    day: int
    asked: tuple[int, ...]


class ServedSlot(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What was served of a layer of an environment's demand in one slot of its calendar: the mean over `count`
    instances, of which older ones count less and less and all together as much as `weight`. layer: 0 all of the demand,
    1 and above the shares of its reservation in their order."""

    layer: int
    slot: int
    count: int
    weight: float
    mean: float


class MissedLayer(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A layer of which less is served than was promised, since when, and in which slot."""

    layer: int
    since_s: float
    slot: int


class PolicedRequest(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A verdict on a request for units, see `shared.policy_api.admission.PoliceVerdict`."""

    at_s: float
    slot: int
    requested: int
    entitled: int
    surplus: int
    rejected: int
    reason: str
    limit: float
    used: int
    width: int


@dataclass(frozen=True, slots=True)
class AssuranceRecord:
    """The known demand of an environment and its measured service. days: oldest first, in slots of `slot_s` in
    `timezone`. served: by layer and slot. instance: the number of the current slot instance (-1: none), of which
    `seen_s` seconds were observed. Its demand was at most `asked` units, and `sums` is the integral over time of the
    served part of each layer. ledger: the used part of its quota, as of slot instance `ledger_instance`. policed:
    oldest first. couplings: in each slot of the day, how far its demand varies with the others' (see
    `shared.policy_api.admission.Standing`); coupled: the number of instances in which that was observed (0:
    unknown)."""

    name: str
    timezone: str = "UTC"
    slot_s: float = 3_600.0
    days: tuple[DemandDay, ...] = ()
    served: tuple[ServedSlot, ...] = ()
    missed: tuple[MissedLayer, ...] = ()
    instance: int = -1
    seen_s: float = 0.0
    asked: int = -1
    sums: tuple[float, ...] = ()
    ledger: Ledger | None = None
    ledger_instance: int = -1
    policed: tuple[PolicedRequest, ...] = ()
    couplings: tuple[float, ...] = ()
    coupled: tuple[int, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name."""
        return ("assurance", self.name)
