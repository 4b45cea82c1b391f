"""The tables [serving] and [probe] of a web file: how requests reach the application, how its instances are watched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from shared.config.records import Form, Range
from shared.values.health import PORT_MAX, Probe, ProbeKind
from shared.values.web_app import QUEUE_MAX, Distribution, Serving

Port = Annotated[int, Range(1, PORT_MAX)]
Requests = Annotated[int, Range(1, QUEUE_MAX)]
Times = Annotated[int, Range(1, 1_000)]
Command = Annotated[str, Form(r"[A-Za-z0-9_-]{0,128}", "at most 128 ASCII letters, digits, '-' or '_'")]
UrlPath = Annotated[str, Form(r"/[!-~]{0,2000}", "a path that begins with /, of printable ASCII without spaces")]


@dataclass(frozen=True, slots=True)
class ServingTable:
    """How requests reach the application, see `shared.values.web_app.Serving`."""

    port: Port
    listen: Port
    distribution: Distribution | None = None
    instance_max: Requests | None = None
    queue_max: Requests | None = None
    queue_limit_s: Annotated[float, Range(0.001, 86_400)] = 10.0


@dataclass(frozen=True, slots=True)
class ProbeTable:
    """How each instance is watched, see `shared.values.health.Probe`. `port`: that of `[serving]` where it is left
    out."""

    kind: ProbeKind
    port: Port | None = None
    path: UrlPath = "/"
    command: Command = ""
    period_s: Annotated[float, Range(0.1, 86_400)] = 5.0
    limit_s: Annotated[float, Range(0.01, 60)] = 2.0
    fall: Times = 3
    rise: Times = 2
    grace_s: Annotated[float, Range(0, 86_400)] = 60.0
    replace_max: Annotated[int, Range(0, 1_000)] = 6


@dataclass(frozen=True, slots=True)
class ProbeIsWhole:
    """A probe has all that its kind needs, and nothing of another's."""

    key: str = "probe.kind"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        kind = values.get(self.key)
        if kind is None:
            return ""
        if kind is ProbeKind.COMMAND:
            return "" if values.get("probe.command", "?") else "beside it the name of a command, probe.command"
        if values.get("probe.command"):
            return f"{ProbeKind.COMMAND.value!r} beside probe.command"
        given = values.get("probe.port", 1) or values.get("serving.port")
        return "" if given else "beside it a port, probe.port or serving.port"


def serving_of(table: ServingTable | None) -> Serving | None:
    """What a table says."""
    return Serving(**asdict(table)) if table is not None else None


def probe_of(table: ProbeTable | None, serving: ServingTable | None) -> Probe | None:
    """What a table says, beside that of how it is served."""
    if table is None:
        return None
    usual = serving.port if serving is not None and table.kind is not ProbeKind.COMMAND else 0
    return Probe(**asdict(table) | {"port": table.port or usual})


def understood(value: Serving | Probe | None) -> dict[str, Any] | None:
    """One of the two as it was understood, for people and for JSON."""
    return asdict(value) if value is not None else None
