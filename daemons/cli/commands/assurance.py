"""`trimtab assurance`: what is reserved and what is served, and whether a reservation would be admitted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from daemons.cli.asking import limit_option, view
from daemons.cli.connection import ControllerConnection, Refused, bus_options, change_options
from daemons.cli.numbers import Number
from daemons.cli.output import REFUSED, emit, output_option
from daemons.cli.render import listing, record, rows_of
from daemons.cli.tables import stacked
from daemons.cli.watching import watch_option
from daemons.manifests.agreement import read_agreement
from daemons.values.text_format import time_text
from shared.protocol.operator_messages import CheckReservation, ReserveEnvironment
from shared.values.scalars import check_name

COLUMNS = ("name", "state", "reserved", "holds", "asked", "entitled", "served", "served_frac", "days", "missed")
LEAST = ("days", "asked", "entitled", "missed")
SHARES = ("class", "first", "units", "promised", "measured", "recently", "observations", "missed_since_s")
SLOTS = ("slot", "declared", "asked", "served")
REQUESTS = ("at_s", "requested", "entitled", "surplus", "rejected", "text")
FORECAST = ("slot", "units", "needed", "best_effort", "classes")
FIGURES = ("slot", "units", "classes")
SPLIT = ("class", "theta", "first", "units", "unit_hours", "cost")
ADMITTED = "admitted"


def _name(_: click.Context, parameter: click.Parameter, value: str) -> str:
    if value:
        check_name(parameter.human_readable_name, value)
    return value


@click.group()
def assurance() -> None:
    """Show service probabilities beside the measured service; check reservations."""


@assurance.command()
@click.argument("name", default="", callback=_name)
@limit_option
@bus_options
@watch_option
@output_option
def show(line: ControllerConnection, name: str, limit: int) -> None:
    """Show what environments reserve, what they are served, and what is left for best effort.

    With NAME show every slot of that environment, its quota, and the verdicts on its requests.

    \b
    Example:
      trimtab assurance show night
    """
    data = view(line, "assurance", name, limit)
    emit(data, lambda: _one(data) if name else _all(data))


@assurance.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--assure",
    type=Number(0.0, 1.0, above=True),
    metavar="X",
    help="Also show the cheapest service classes that serve this fraction of the demand.",
)
@bus_options
@output_option
def check(line: ControllerConnection, file: Path, assure: float | None) -> None:
    """Check whether the reservation in FILE, an environment's specification, would be admitted; change nothing.

    Exit status 1 when it would not be admitted as it is.

    \b
    Example:
      trimtab assurance check env-web.toml
    """
    agreement = read_agreement(file)
    with line:
        data = line.ask(CheckReservation(line.new_id(), agreement, assure or 0.0))
    found = dict(data) if isinstance(data, dict) else {}
    emit(found, lambda: _verdict(found))
    if found.get("outcome") != ADMITTED:
        click.get_current_context().exit(REFUSED)


@assurance.command()
@click.argument("file", type=click.Path(path_type=Path))
@change_options
@output_option
def reserve(line: ControllerConnection, file: Path) -> None:
    """Reserve for an existing environment what FILE, its specification, states.

    Without a table [assurance] only its bounds are reserved. The former reservation stays unless the new one is
    admitted.

    \b
    Example:
      trimtab assurance reserve env-web.toml
    """
    agreement = read_agreement(file)
    request = line.new_id()
    with line:
        (reply,) = line.ask_all([ReserveEnvironment(request, agreement.name, agreement.assurance)])
    if not reply.done:
        raise Refused(reply.code, reply.detail)
    done = f"environment {agreement.name} has the reservation of its specification"
    emit({"done": True, "request": request, "verdict": reply.data}, lambda: Text(done))


# --- for people -----------------------------------------------------------------------------------------------------


def _all(data: Mapping[str, Any]) -> RenderableType:
    rows = rows_of(data, "environments")
    shares = [{"name": row["name"], **share} for row in rows for share in rows_of(row, "shares")]
    return stacked(
        listing("environments", rows, COLUMNS, LEAST),
        listing("shares", [_numbers(row) for row in shares], ("name", *SHARES)),
        listing("left for best effort", [_forecast(row) for row in rows_of(data, "forecast")], FORECAST),
        *_trouble(data),
    )


def _one(data: Mapping[str, Any]) -> RenderableType:
    (row,) = rows_of(data, "environments") or ({},)
    inner = ("shares", "slots", "requests", "entitlement")
    plain = {key: value for key, value in row.items() if key not in inner}
    return stacked(
        record(f"assurance of environment {row.get('name', '')}", plain),
        listing("shares", [_numbers(each) for each in rows_of(row, "shares")], SHARES),
        listing("slots", [_slot(each) for each in rows_of(row, "slots")], SLOTS),
        listing("requests", rows_of(row, "requests"), REQUESTS),
        *_trouble(data),
    )


def _trouble(data: Mapping[str, Any]) -> list[RenderableType]:
    if data.get("policy") is None:
        return [Text("no admission policy is configured: nothing is reserved or measured")]
    return [Text(f"the admission policy has not answered: {data['trouble']}")] if data.get("trouble") else []


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}


def _forecast(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "classes": _classes(row)}


def _classes(row: Mapping[str, Any]) -> str:
    parts = (
        f"{one['service_class']} {one['theta']:g}: {one['needed']} of {one['left']}, {one['reached']:.4f}"
        for one in rows_of(row, "classes")
    )
    return "; ".join(parts)


def _slot(row: Mapping[str, Any]) -> dict[str, Any]:
    def shape(found: Any) -> str:
        if not isinstance(found, Mapping):
            return ""
        seen = f" in {found['instances']}" if "instances" in found else ""
        return f"mean {found['mean']:.2f}, peak {found['peak']}{seen}"

    served = ("" if each is None else f"{each['mean']:.4f} ({each['count']})" for each in row.get("served", ()))
    return {
        "slot": row.get("slot"),
        "declared": shape(row.get("declared")),
        "asked": shape(row.get("asked")),
        "served": ", ".join(served),
    }


def _verdict(data: Mapping[str, Any]) -> RenderableType:
    plain = {key: data.get(key) for key in ("name", "outcome", "reason", "text")}
    if isinstance(data.get("first_start_s"), float):
        plain["fits_from"] = time_text(data["first_start_s"])
    parts: list[RenderableType] = [record("reservation", plain)]
    parts += [listing(f"offered of {row['resource']}", _offered(row), ("share", "offered", "asked"))
              for row in rows_of(data, "offer")]  # fmt: skip
    parts.append(listing("slots", [_forecast(row) for row in rows_of(data, "figures")], FIGURES))
    for split in rows_of(data, "splits"):
        title = f"cheapest split of {split['resource']}: {split['cost']:.4g}, all guaranteed {split['peak_cost']:.4g}"
        rows = [_numbers({**share, "class": share["service_class"]}) for share in rows_of(split, "shares")]
        parts.append(listing(title, rows, SPLIT))
    return stacked(*parts)


def _offered(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    pairs = zip(row["offered"], row["asked"], strict=True)
    return [{"share": number, "offered": offered, "asked": asked} for number, (offered, asked) in enumerate(pairs, 1)]
