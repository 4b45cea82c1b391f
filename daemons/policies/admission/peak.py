"""The baseline for statistical assurance: all peaks at once must fit, for any service probability (section 6.4.1)."""

from __future__ import annotations

from daemons.policies.admission.evaluator import Evaluation
from daemons.policies.admission.sums import PeakSum


class Peak(Evaluation):
    """Nothing is overbooked but best effort."""

    name = "peak"
    kind = PeakSum
