"""FB and FLB-NUB: two environments share the sum of their lower bounds (phoenixcloud.txt section 5)."""

from __future__ import annotations

import math

from shared.policy_api.coordination import GroupSizes, GroupView, Moment
from shared.values.agreement import WorkloadType


class FixedBounds:
    """FB (section 5.1): the group never has more than the sum of its lower bounds. The web environment gets what it
    needs at once, from idle units of the provider, then from the batch environment; what it gives back goes to the
    batch environment at the provider's next timer."""

    name = "fb"
    asked_at_arrivals = False

    def objection(self, lower: int, upper: int | None) -> str:
        """Return an objection unless the two bounds are the same."""
        return "" if upper in (None, lower) else f"the model fb has one bound: leave upper out, or make it {lower}"

    def firm(self, lower: int, upper: int | None) -> int:
        """Return its own units."""
        del upper
        return lower

    def decide(self, group: GroupView, moment: Moment) -> GroupSizes:
        """Return the sizes in units, in the order of the parties. O(1)."""
        size, web, batch = group.lower, group.of(WorkloadType.WEB), group.of(WorkloadType.BATCH)
        serving = 0 if web is None else min(web.owned, size)
        working = 0 if batch is None else batch.owned
        if moment in (Moment.START, Moment.DEMAND) and web is not None:
            serving = min(web.wanted, size)
        refilled = moment in (Moment.START, Moment.PROVISION)
        working = size - serving if refilled else min(working, size - serving)
        return _sizes(group, serving, working)


class FixedLowerBound:
    """FLB-NUB (section 5.2): the sum of the lower bounds is the group's own, and both environments may have more. The
    web environment grows as it needs, from outside; the batch environment asks and gives back as its manager says,
    and is given what is idle within the lower bounds at the provider's timer. With upper bounds their sum is the
    end."""

    name = "flb-nub"
    asked_at_arrivals = False

    def objection(self, lower: int, upper: int | None) -> str:
        """Any bounds will do."""
        del lower, upper
        return ""

    def firm(self, lower: int, upper: int | None) -> int:
        """Up to its upper bound it comes before others; without one, only as far as its lower bound."""
        return lower if upper is None else upper

    def decide(self, group: GroupView, moment: Moment) -> GroupSizes:
        """Return the sizes in units, in the order of the parties. O(1)."""
        own, web, batch = group.lower, group.of(WorkloadType.WEB), group.of(WorkloadType.BATCH)
        bounded = all(party.upper is not None for party in group.parties)
        most = sum(party.upper or 0 for party in group.parties) if bounded else math.inf
        serving = 0 if web is None else int(min(web.owned, most))
        if moment in (Moment.START, Moment.DEMAND) and web is not None:
            serving = int(min(web.wanted, most))
        if batch is None:
            return _sizes(group, serving, 0)
        working, reason = batch.owned, ""
        if moment in (Moment.START, Moment.PROVISION):
            working = max(working, own - serving)
        elif moment is Moment.MANAGE and batch.asks is not None:
            working, reason = batch.asks.units, batch.asks.reason
        return _sizes(group, serving, int(min(working, most - serving)), reason)


def _sizes(group: GroupView, serving: int, working: int, reason: str = "") -> GroupSizes:
    return GroupSizes(
        tuple(serving if party.workload is WorkloadType.WEB else working for party in group.parties), reason
    )
