"""What coordination is compared with: dedicated clusters (DCS) and resources on demand (EC2 + RightScale), as in
phoenixcloud.txt section 6."""

from __future__ import annotations

from shared.policy_api.coordination import GroupSizes, GroupView, Moment, Party
from shared.values.agreement import WorkloadType


class Dedicated:
    """Every environment has its lower bound, always."""

    name = "dedicated"
    asked_at_arrivals = False

    def objection(self, lower: int, upper: int | None) -> str:
        """Return an objection unless the two bounds are the same."""
        return (
            "" if upper in (None, lower) else f"the model dedicated has one size: leave upper out, or make it {lower}"
        )

    def firm(self, lower: int, upper: int | None) -> int:
        """Return its own units."""
        del upper
        return lower

    def decide(self, group: GroupView, moment: Moment) -> GroupSizes:
        """Return the sizes in units, in the order of the parties. O(1)."""
        del moment
        return GroupSizes(tuple(party.lower for party in group.parties))


class OnDemand:
    """Units are taken as jobs arrive and instances are added; web units go back when they are not needed any more,
    batch units that are idle at the end of a lease unit. Nothing is shared between the two."""

    name = "on-demand"
    asked_at_arrivals = True

    def objection(self, lower: int, upper: int | None) -> str:
        """Return an objection if anything is set aside."""
        del upper
        return "" if lower == 0 else "the model on-demand sets nothing aside: lower is 0"

    def firm(self, lower: int, upper: int | None) -> int:
        """Return the lower bound: the environment never has priority."""
        del upper
        return lower

    def decide(self, group: GroupView, moment: Moment) -> GroupSizes:
        """Return the sizes in units, in the order of the parties. O(1)."""
        return GroupSizes(tuple(_size(party, moment) for party in group.parties))


def _size(party: Party, moment: Moment) -> int:
    if party.workload is WorkloadType.WEB:
        size = party.wanted if moment in (Moment.START, Moment.DEMAND) else party.owned
    else:
        busy = party.owned - party.idle
        size = busy + party.queued if moment is Moment.MANAGE else max(party.owned, busy + party.queued)
    return size if party.upper is None else min(size, party.upper)
