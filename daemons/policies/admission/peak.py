"""What statistical assurance is compared with: all peaks at once must fit, whatever was promised (section 6.4.1)."""

from __future__ import annotations

from daemons.policies.admission.desk import AtDesk
from daemons.policies.admission.sums import PeakSum


class Peak(AtDesk):
    """Nothing is overbooked but best effort."""

    name = "peak"
    kind = PeakSum
