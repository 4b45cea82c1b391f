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
    """How requests reach the application through a load balancer."""

    port: Port
    """Port on which every instance answers. Example: `8080`."""
    listen: Port
    """Port on which the load balancer listens for clients. Example: `8001`."""
    distribution: Distribution | None = None
    """Choice of the instance for a request. `source` keeps a client on one instance; `weighted` follows CPU. Left out:
    as the environment type sets it. Example: `"least-connections"`."""
    instance_max: Requests | None = None
    """Requests that one instance serves at a time. Left out: from the performance model. Example: `64`."""
    queue_max: Requests | None = None
    """Requests that may wait; more are rejected. Left out: from the performance model. Example: `200`."""
    queue_limit_s: Annotated[float, Range(0.001, 86_400)] = 10.0
    """Longest time that a request waits. Then it is rejected."""


@dataclass(frozen=True, slots=True)
class ProbeTable:
    """Health checks of instances. An unhealthy instance is replaced."""

    kind: ProbeKind
    """How an instance is checked: an HTTP request, a TCP connection, or a command of the agent. Example: `"http"`."""
    port: Port | None = None
    """Port that is checked, for `http` and `tcp`. Left out: `serving.port`. Example: `8080`."""
    path: UrlPath = "/"
    """Path that is requested, for `http`. A status from 200 to 399 is healthy."""
    command: Command = ""
    """Name of a command in `[health_checks.commands]` of the agents, for `command`."""
    period_s: Annotated[float, Range(0.1, 86_400)] = 5.0
    """Interval between two checks of an instance."""
    limit_s: Annotated[float, Range(0.01, 60)] = 2.0
    """Time limit of one check."""
    fall: Times = 3
    """Failed checks in a row after which an instance is unhealthy."""
    rise: Times = 2
    """Successful checks in a row after which an instance is healthy."""
    grace_s: Annotated[float, Range(0, 86_400)] = 60.0
    """Time after its start in which failed checks of an instance do not count."""
    replace_max: Annotated[int, Range(0, 1_000)] = 6
    """Most unhealthy instances that are replaced in an hour."""


@dataclass(frozen=True, slots=True)
class ProbeIsWhole:
    """`probe.command` is given for the kind `command` alone. The other kinds need `probe.port` or `serving.port`."""

    key: str = "probe.kind"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
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
    """Convert a table to its values."""
    return Serving(**asdict(table)) if table is not None else None


def probe_of(table: ProbeTable | None, serving: ServingTable | None) -> Probe | None:
    """Convert a probe's table, with defaults from the serving table."""
    if table is None:
        return None
    usual = serving.port if serving is not None and table.kind is not ProbeKind.COMMAND else 0
    return Probe(**asdict(table) | {"port": table.port or usual})


def understood(value: Serving | Probe | None) -> dict[str, Any] | None:
    """Return one of the two as it was understood, for people and for JSON."""
    return asdict(value) if value is not None else None
