"""What the controller's configuration file may say of notifications: `[notify]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from shared.config.records import Form, Range

ChannelName = Annotated[str, Form(r"[A-Za-z0-9_-]{1,64}", "ASCII letters, digits, '-' or '_'")]
Hour = Annotated[str, Form(r"(([01][0-9]|2[0-3]):[0-5][0-9])?", "a local time of day, HH:MM, or nothing")]
Zone = Annotated[str, Form(r"[A-Za-z][A-Za-z0-9_+/-]{0,63}", "a time zone such as Europe/Berlin or UTC")]


@dataclass(frozen=True, slots=True)
class NotifyRuleKeys:
    """What is told over which channels. `events`: codes of events, and of alarms after `alarm:`, with `*` and `?`;
    `subjects`: the same for what they are about (empty: everything). An alarm that lasts is told again every
    `at_least_every_s` (0: it is not). Gathered for `digest_s` into one message. About the same subject there is one
    message in `damp_s`. From `quiet_from` to `quiet_until`, by the clock of `timezone`, messages wait."""

    events: tuple[Annotated[str, Form(r"(alarm:)?[a-z?*-]{1,64}", "a code, or `alarm:` and a code")], ...]
    channels: tuple[ChannelName, ...]
    subjects: tuple[Annotated[str, Form(r"[^\0]{1,256}", "a name, or part of one with * and ?")], ...] = ()
    at_least_every_s: Annotated[float, Range(0, 31_536_000)] = 0.0
    digest_s: Annotated[float, Range(0, 86_400)] = 0.0
    damp_s: Annotated[float, Range(0, 86_400)] = 300.0
    quiet_from: Hour = ""
    quiet_until: Hour = ""
    timezone: Zone = "UTC"


@dataclass(frozen=True, slots=True)
class NotifyKeys:
    """Who is told what. `channels`: tables of keys by name, of which `kind` is the driver and the others are its own.
    `cluster`: what messages say that they are of. A message is given up after `tries_max` tries, or when one fails
    more than `give_up_s` after it was written; `waiting_max` notifications may wait for a channel."""

    channels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rules: tuple[NotifyRuleKeys, ...] = ()
    cluster: Annotated[str, Form(r"[A-Za-z0-9_-]{1,64}", "ASCII letters, digits, '-' or '_'")] = "trimtab"
    tries_max: Annotated[int, Range(1, 10_000)] = 100
    give_up_s: Annotated[float, Range(1, 604_800)] = 86_400.0
    waiting_max: Annotated[int, Range(10, 100_000)] = 1_000
