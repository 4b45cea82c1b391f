"""What statistical-assurance.txt prints, and the data that it is played with."""

from __future__ import annotations

from typing import Final

from sim_backend.experiments.assurance.data import Name

DATA: Final[tuple[Name, ...]] = ("bitbrains", "planetlab")
THETAS: Final = (0.8, 0.9, 0.99, 0.999)
PROMISED: Final = (0.99, 0.999)
"""Of figures 3 and 4."""
UPPER, LOWER = 0.999, 0.99  # The predictable classes of section 6.5
TABLE_2: Final = {0.8: (101, 101, 117), 0.9: (113, 113, 133), 0.99: (131, 134, 158), 0.999: (141, 147, 172)}
"""theta: servers without correlation, with it, with it and overhead."""
STATIC, SLOT_PEAK = 309, 275  # Figure 3
INDEPENDENT: Final = {0.99: 154, 0.999: 166}
WORST: Final = {0.99: 201, 0.999: 239}
"""Figure 3: theta: servers; at a correlation of 0 and of 0.75."""
RHO, RHO_WORST = 0.07, 0.75
ACHIEVED_TOGETHER: Final = {0.99: 0.98, 0.999: 0.996}
"""Figure 4: theta: what is achieved when demands are as correlated as they can be."""
TABLE_1_PMFS: Final = ((0.0, 0.14, 0.0, 0.66, 0.20), (0.0, 0.11, 0.03, 0.75, 0.11), (0.0, 0.14, 0.0, 0.83, 0.03))
TABLE_1_COVARIANCES: Final = {(0, 1): 0.5988, (0, 2): 0.57, (1, 2): 0.495}
"""Of each pair of slots: the largest covariance that two applications of these probabilities can have."""
NORMAL_SIZES: Final = {
    (125.7, 8.45): (101, 113, 131, 141),
    (147.0, 13.45): (117, 133, 158, 172),
}
"""Mean and standard deviation that lead to columns of Table 2 by equation 8: servers for each of THETAS."""
TWO_PMFS: Final = ((0.0, 0.5, 0.5), (0.0, 0.25, 0.75))
TWO_THETAS: Final = (0.322917, 0.645833, 0.90625, 1.0)
"""Two applications with these probabilities: theta with 1 to 4 servers."""
PERTURBED_MEAN, PERTURBED_5TH, PERTURBED_LEAST = 0.9975, {35: 0.993, 100: 0.995}, 0.989
"""Figure 5."""
TABLE_3_SHARES: Final = (0.25, 0.5, 0.75, 1.0)
TABLE_3_WIDTHS: Final = (2, 4, 6, 8)
TABLE_3_VERTICAL: Final = {1: (5, 13, 23, 35), 2: (6, 15, 25, 35)}
"""slot: windows that may hold 25, 50, 75 and 100 % of what all observations hold."""
TABLE_3_HORIZONTAL: Final = {1: (0.77, 0.73, 0.79, 0.81), 2: (1.0, 0.80, 0.73, 0.70)}
"""slot: the part of the sum of peaks that windows of 2, 4, 6 and 8 slots hold at most."""
UNUSED: Final = (150, 170)
UNUSED_PERCENT: Final = 30.0
