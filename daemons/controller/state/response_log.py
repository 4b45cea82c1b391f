"""The response times of a web application while the CPU of its instances stayed the same.

A sample of a second or a few says little: requests queue in a few busy moments, and most seconds have none. The mean of
the logarithms of such samples would be far below the logarithm of their mean. Samples are therefore put together for as
long as the CPU stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shared.values.web_app import FlowSample

STEADY_FRAC = 0.02  # a change of the instances' CPU by less is none
EARLY_FRAC = 0.25  # of a sample: it counts where the CPU was the same after that
LEAST_S, MOST_S = 5.0, 60.0  # of a window


@dataclass(frozen=True, slots=True)
class SteadyWindow:
    """`mhz`: the CPU of all instances meanwhile; `flows`: the samples of each, in order of time."""

    mhz: float
    flows: dict[str, list[FlowSample]]


@dataclass(slots=True)
class ResponseLog:
    """Of one application. `mhz`: the CPU of its running instances, `since_s`: since when it is that; `open_mhz`,
    `seconds`, `flows`: of the window that is open."""

    mhz: float = 0.0
    since_s: float = 0.0
    open_mhz: float = 0.0
    seconds: float = 0.0
    flows: dict[str, list[FlowSample]] = field(default_factory=dict)

    def given(self, mhz: float, now_s: float) -> None:
        """Take in the CPU that the running instances have now."""
        if abs(mhz - self.mhz) > STEADY_FRAC * mhz:
            self.mhz, self.since_s = mhz, now_s

    def answered(self, at_s: float, samples: Sequence[FlowSample]) -> list[SteadyWindow]:
        """Take in samples of flows, each once, that end at `at_s`; return the windows that they close."""
        sample_s = max((one.window_s for one in samples), default=0.0)
        begins_s = at_s - sample_s
        found = self.close() if self.since_s > begins_s or self.mhz != self.open_mhz else []
        if not samples or not self.mhz or self.since_s > begins_s + EARLY_FRAC * sample_s:
            return found
        self.open_mhz, self.seconds = self.mhz, self.seconds + sample_s
        for one in samples:
            self.flows.setdefault(one.flow, []).append(one)
        return found if self.seconds < MOST_S else found + self.close()

    def close(self) -> list[SteadyWindow]:
        """End the open window; return it where it is long enough."""
        window = SteadyWindow(self.open_mhz, self.flows)
        long = self.seconds >= LEAST_S
        self.seconds, self.flows = 0.0, {}
        return [window] if long else []
