"""Statistical assurance: as much is promised as the distribution of the sum of demands allows (sections 3.2 and 4)."""

from __future__ import annotations

from daemons.policies.admission.evaluator import Evaluation
from daemons.policies.admission.sums import StatisticalSum


class Statistical(Evaluation):
    """A class holds with the least units that serve theta of the sum of its demands. Of correlation the worst is
    assumed, until more is known."""

    name = "statistical"
    kind = StatisticalSum
