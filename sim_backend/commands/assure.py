"""`trimtab sim assure`: how many servers applications need together to serve a stated fraction of their demand."""

from __future__ import annotations

import math
from pathlib import Path
from zoneinfo import ZoneInfo

import click
from rich.console import RenderableType
from rich.text import Text

from daemons.capacity.assurance.file import read_trace
from daemons.capacity.assurance.report import AssureOptions, AssureReport, ResourceReport, report_of
from daemons.cli.numbers import Number, plain_number
from daemons.cli.output import emit, output_option
from daemons.cli.tables import Fitted, stacked
from daemons.models.assurance.calendar import slot_count
from daemons.models.assurance.choice import Method
from daemons.values.calendar import check_zone
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.values.reservation import Calendar

THETAS = "0.8,0.9,0.99,0.999"
THETAS_MAX = 20
FIGURES = ("mean", "sd", "rho", "normality p")


def _thetas(_: click.Context, __: click.Parameter, text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for word in (part.strip() for part in text.split(",")):
        value = plain_number(word)
        if math.isnan(value):
            raise click.BadParameter(
                f"{word!r} is not a number: expected numbers above 0 and below 1, such as {THETAS}"
            )
        if value == 1.0:
            raise click.BadParameter("1 is the class guaranteed, which needs slot_peak: expected below 1")
        if not 0.0 < value < 1.0:
            raise click.BadParameter(f"{word}: expected numbers above 0 and below 1")
        found[word] = value
    if len(found) > THETAS_MAX:
        raise click.BadParameter(f"{len(found)} of them: expected at most {THETAS_MAX}")
    return found


def _servers(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        name, _sign, amount = text.partition("=")
        value = found[name.strip()] = plain_number(amount)
        if math.isnan(value):
            raise click.BadParameter(f"{text!r}: expected a resource and an amount, such as memory_gib=64")
        if not 0.0 < value < math.inf:
            raise click.BadParameter(f"{text!r}: expected an amount above 0")
    return found


def _slot(_: click.Context, __: click.Parameter, slot_s: float) -> float:
    try:
        slot_count(Calendar.HOUR_OF_DAY, slot_s)
    except InvalidValue as error:
        raise click.BadParameter(str(error)) from error
    return slot_s


def _zone(_: click.Context, __: click.Parameter, name: str | None) -> ZoneInfo | None:
    if name is None:
        return None
    try:
        check_zone("timezone", name)
    except InvalidValue as error:
        raise click.BadParameter(str(error)) from error
    return ZoneInfo(name)


@click.command()
@click.argument("demand", metavar="DEMAND.csv", type=click.Path(path_type=Path))
@click.option(
    "--slot",
    "slot_s",
    type=Number(1.0, 86_400.0),
    callback=_slot,
    default=3_600.0,
    show_default=True,
    help="Length of a slot in seconds.",
)
@click.option(
    "--target-utilisation",
    "target",
    type=Number(1e-6, 1.0),
    default=0.5,
    show_default=True,
    help="Target utilisation of a CPU, for traces of utilisation.",
)
@click.option(
    "--theta",
    "thetas",
    callback=_thetas,
    default=THETAS,
    show_default=True,
    help="Service probabilities, comma between.",
)
@click.option(
    "--migration-overhead", is_flag=True, help="Request servers one slot earlier and return them one slot later."
)
@click.option(
    "--method",
    type=click.Choice([method.value for method in Method]),
    default=Method.AUTO.value,
    show_default=True,
    help="How the distribution of the sum is computed; auto: chosen for each slot.",
)
@click.option(
    "--calendar",
    type=click.Choice([calendar.value for calendar in Calendar]),
    default=Calendar.HOUR_OF_DAY.value,
    show_default=True,
    help="Which slots share a distribution.",
)
@click.option("--timezone", "zone", callback=_zone, metavar="ZONE", help="Time zone, for times with an offset.")
@click.option(
    "--server",
    "server",
    multiple=True,
    callback=_servers,
    metavar="NAME=AMOUNT",
    help="Capacity of a server; repeatable.",
)
@output_option
def assure(
    demand: Path,
    slot_s: float,
    target: float,
    thetas: dict[str, float],
    migration_overhead: bool,
    method: str,
    calendar: str,
    zone: ZoneInfo | None,
    server: dict[str, float],
) -> None:
    """Compute how many servers the applications in DEMAND.csv need together, per slot and service probability.

    \b
    Example:
      trimtab sim assure examples/assure-demand.csv
    """
    asked = AssureOptions(slot_s, Calendar(calendar), target, thetas, migration_overhead, Method(method), server)
    trace = read_trace(demand, zone)
    try:
        report = report_of(trace, asked)
    except InvalidValue as problem:
        what = f"{problem.field} = {problem.got!r}"
        raise InvalidInput(Problem(str(demand), what, problem.expected)) from problem
    emit(report.to_json(), lambda: for_people(report))


def for_people(report: AssureReport) -> RenderableType:
    """Tables."""
    parts: list[RenderableType] = []
    for name, each in report.resources.items():
        parts.append(_table(name, each))
        peaks = f"sum of slot peaks {each.slot_peak}, each application's own peak {each.static_peak}"
        parts.append(Text(f"{name}: {peaks}"))
    for theta, name in report.binding.items():
        parts.append(Text(f"theta {theta}: {name} needs the most servers"))
    parts += [Text(f"note: {note}") for note in report.notes]
    parts.append(Text(f"{report.applications} applications, {report.wall_s:.2f} s"))
    return stacked(*parts)


def _table(name: str, report: ResourceReport) -> RenderableType:
    rows = []
    for row in report.slots:
        figures = [f"{row['mean']:.2f}", f"{row['sd']:.2f}", f"{row['rho']:.3f}"]
        normal = "-" if row["normality_p"] is None else f"{row['normality_p']:.3f}"
        mark = " (rejected)" if row["method"] == Method.NORMAL.value and row["normal_rejected"] else ""
        gammas = [str(row["gamma"][theta]) for theta in report.gamma]
        rows.append([str(row["slot"]), *figures, normal, *gammas, str(row["peak"]), row["method"] + mark])
    largest = [str(report.gamma[theta]) for theta in report.gamma]
    rows.append(["largest", "", "", "", "", *largest, str(report.slot_peak), ""])
    heads = ("slot", *FIGURES, *report.gamma, "peak", "method")
    return Fitted(f"{name} for each assurance", heads, rows, ("normality p", "rho", "sd"), heads[1:-1])
