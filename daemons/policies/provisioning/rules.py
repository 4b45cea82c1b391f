"""The policies of batch-provisioning.txt section 4.2 and what goes beyond them, each by the table of its sizes."""

from __future__ import annotations

from daemons.policies.provisioning.sized import Priced, Sized


class Threshold(Sized):
    """Heuristic 1: the fewest nodes that keep the promise if nothing is changed any more."""

    name = method = "threshold"
    by_price = False


class DelayedThreshold(Threshold):
    """Heuristic 2: as heuristic 1, but nodes are removed only when it wanted that at the decision before too."""

    name = method = "delayed-threshold"
    delays = True


class CostAware(Priced):
    """Heuristic 3: the least expected cost by dynamic programming, within what can keep the promise."""

    name = method = "cost-aware"


class CostAwareMonotone(Priced):
    """Heuristic 4: as heuristic 3; more jobs never mean fewer nodes."""

    name = method = "cost-aware-monotone"


class CostAwareFast(Priced):
    """Heuristic 5: as heuristic 3, but it chooses as if removal were free."""

    name = method = "cost-aware-fast"


class LinearProgram(Sized):
    """The sizes of a linear program over the expected numbers of jobs."""

    name = method = "lp"


class Optimal(Sized):
    """The least expected cost of all rules that keep the promise."""

    name = method = "optimal"
