"""Application monitors: how instances of web applications are watched on their nodes, and what is found. No numpy here.

Units are in the names, as in `shared.values.jobs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from shared.base.errors import InvalidValue
from shared.values.scalars import Number, Whole, check_name, not_negative, positive, whole
from shared.values.texts import Label, Line

PORT_MAX = 65_535
PERIOD_S_MAX, LIMIT_S_MAX, GRACE_S_MAX = 86_400.0, 60.0, 86_400.0
NO_ADDRESS = "no address"  # detail of an instance that cannot be probed: nobody knows where it answers
UNKNOWN_COMMAND = (
    "unknown command"  # begin of the detail where the agent does not know the probe's command, or cannot run it
)


class ProbeKind(StrEnum):
    """How an application monitor finds out whether an instance serves."""

    HTTP = "http"  # GET `path` on `port`: a status from 200 to 399
    TCP = "tcp"  # a connection to `port`
    COMMAND = "command"  # a program that the node's agent knows as `command`: exit status 0


@dataclass(frozen=True, slots=True)
class Probe:
    """How each instance of a web application is watched, every `period_s`. It counts as unhealthy after `fall` failed
    probes in a row and as healthy after `rise` good ones; in its first `grace_s` failures are not counted. An unhealthy
    one is replaced, at most `replace_max` of an application in an hour and one at a time (0: none is)."""

    kind: ProbeKind
    port: int = 0
    path: str = "/"
    command: str = ""
    period_s: float = 5.0
    limit_s: float = 2.0
    fall: int = 3
    rise: int = 2
    grace_s: float = 60.0
    replace_max: int = 6

    def __post_init__(self) -> None:
        if (self.kind is ProbeKind.COMMAND) is not bool(self.command):
            raise InvalidValue("command", self.command, "the name of a command for kind command, else nothing")
        if self.command:
            check_name("command", self.command)
        whole("port", self.port, 0 if self.kind is ProbeKind.COMMAND else 1, PORT_MAX)
        if not self.path.startswith("/") or not self.path.isascii() or not self.path.isprintable() or " " in self.path:
            raise InvalidValue("path", self.path, "a path that begins with /, of printable ASCII without spaces")
        positive("period_s", self.period_s)
        positive("limit_s", self.limit_s)
        whole("fall", self.fall, 1, 1_000)
        whole("rise", self.rise, 1, 1_000)
        not_negative("grace_s", self.grace_s)
        for key, most in (("period_s", PERIOD_S_MAX), ("limit_s", LIMIT_S_MAX), ("grace_s", GRACE_S_MAX)):
            if getattr(self, key) > most:  # whoever waits for so long must be able to
                raise InvalidValue(key, getattr(self, key), f"at most {most:g}")
        whole("replace_max", self.replace_max, 0, 1_000)


@dataclass(frozen=True, slots=True)
class Target:
    """An instance that a node's agent is to watch: its VM of that generation, and how."""

    vm: Label
    generation: int
    probe: Probe


class Health(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What the application monitor of a node knows of an instance that it watches: healthy or not, since when by the
    agent's clock, why not, and how many probes it has answered for (0: it has only begun to watch)."""

    vm: Label
    generation: Whole = 0
    healthy: bool = True
    since_s: Number = 0.0
    detail: Line = ""
    probes: Whole = 0
