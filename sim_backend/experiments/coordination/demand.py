"""Figure 9 of phoenixcloud.txt: the demand of 64 VMs, from the requests to the World Cup site."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from daemons.capacity.coordination.demand import read_steps
from daemons.capacity.process_pool import Work
from daemons.capacity.request_counts import Steps, by_hour, by_minute, read_requests
from daemons.models.adjustment import adjusted
from daemons.report.charts import Chart, Series, Style, X
from daemons.report.themes import AT_BLUE, AT_ORANGE, SOLID
from shared.base.errors import InvalidInput, Problem
from sim_backend.experiments.coordination.runs import DATA_VARIABLE, data_folder
from sim_backend.experiments.coordination.settings import TWO_WEEKS_S, WEB, WEB_PEAK
from sim_backend.experiments.drawing import saved
from sim_backend.experiments.experiment import Row

REQUESTS = "worldcup98/requests_per_minute.csv.gz"
WEB_BY_MINUTE = "worldcup98/ws_demand_minute_64vm.csv"
START = datetime(1998, 6, 6, 22, tzinfo=UTC)  # 7 June, 0:00 in Paris
_DAY_S = 86_400.0
_COLOURS = {"hourly": AT_ORANGE, "minute": AT_BLUE}


@dataclass(frozen=True, slots=True)
class Demands:
    """A series as it comes out of the requests, and as it is kept beside them."""

    name: str
    file: str
    made: Steps
    kept: Steps

    @property
    def vm_hours(self) -> float:
        """What it comes to in two weeks."""
        ends = [at_s for at_s, _ in self.made[1:]] + [TWO_WEEKS_S]
        return sum(vms * (end_s - at_s) for (at_s, vms), end_s in zip(self.made, ends, strict=True)) / 3_600.0


def play_demand(folder: Path) -> list[Demands]:
    """Compute both demand series. Raises `InvalidInput` when a file is missing or invalid."""
    requests = read_requests(folder / REQUESTS, START, TWO_WEEKS_S)
    made = (
        ("hourly", WEB, by_hour(requests, WEB_PEAK)),
        ("minute", WEB_BY_MINUTE, by_minute(requests, WEB_PEAK, adjusted)),
    )
    return [Demands(name, file, steps, _kept(folder / file)) for name, file, steps in made]


def _kept(path: Path) -> Steps:
    found = read_steps(path, 1.0)
    return list(zip(found.times_s, found.nodes, strict=True))


def work_demand(seeds: int) -> list[Work]:
    """Return the work as a single piece without randomness."""
    del seeds
    folder = data_folder()
    missing = [file for file in (REQUESTS, WEB_BY_MINUTE) if not (folder / file).is_file()]
    if missing:
        raise InvalidInput(
            Problem(DATA_VARIABLE, f"names a folder without {', '.join(missing)}", "the logs (docs/appendix/data.md)")
        )
    return [(play_demand, (folder,))]


def rows_demand(results: Sequence[Sequence[Demands]]) -> list[Row]:
    """Return rows for the claims of the figure, and for whether the stored series equal those computed from the
    requests."""
    rows: list[Row] = []
    for each in (demand for found in results for demand in found):
        same = sum(one == other for one, other in zip(each.made, each.kept, strict=False))
        peak = max(vms for _, vms in each.made)
        id, by = f"fig9-{each.name}", "the mean of each hour" if each.name == "hourly" else "the rule of section 6.4"
        rows.append(
            Row(
                id,
                f"demand by {by}: steps as in {Path(each.file).name}",
                None,
                f"{same:,} of {len(each.made):,} alike, {len(each.kept):,} there",
                each.made == each.kept,
                "the paper's own series is not published; this one is computed from the real requests",
            )
        )
        why = f"{each.vm_hours:,.0f} VM-hours in two weeks; one VM carries at 80 % what makes it so"
        rows.append(Row(f"{id}/peak", f"demand by {by}: peak (VMs)", WEB_PEAK, peak, peak == WEB_PEAK, why))
    return rows


def draw_demand(results: Sequence[Sequence[Demands]], folder: Path) -> list[Path]:
    """Figure 9."""
    demands = [demand for found in results for demand in found]
    return [saved("phoenixcloud", folder, "9", _chart(demands))]


def _chart(demands: Sequence[Demands]) -> Chart:
    series: list[Series] = []
    for each in reversed(demands):
        days = [at_s / _DAY_S for at_s, _ in each.made] + [TWO_WEEKS_S / _DAY_S]
        vms = [count for _, count in each.made]
        series.append(
            Series(each.name, days, [*vms, vms[-1]], style=Style.STEP, colour=_COLOURS[each.name], dash=SOLID)
        )
    title = "the World Cup demand in two weeks"
    return Chart("demand", title, "VMs", series=tuple(series), x=X.NUMBER, x_label="days since 7 June 1998")
