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
    """Which events and alarms are sent over which channels."""

    events: tuple[Annotated[str, Form(r"(alarm:)?[a-z?*-]{1,64}", "a code, or `alarm:` and a code")], ...]
    """Codes of events, and of alarms after `alarm:`. `*` matches any letters, `?` one letter. Example:
    `["alarm:*"]`."""
    channels: tuple[ChannelName, ...]
    """Names of the channels that get the notifications. Example: `["WEBHOOK"]`."""
    subjects: tuple[Annotated[str, Form(r"[^\0]{1,256}", "a name, or part of one with * and ?")], ...] = ()
    """Names that events and alarms must be about, with `*` and `?`. Empty: everything."""
    at_least_every_s: Annotated[float, Range(0, 31_536_000)] = 0.0
    """Interval at which a lasting alarm is repeated. 0: never."""
    digest_s: Annotated[float, Range(0, 86_400)] = 0.0
    """Time during which notifications are collected into one message. 0: none."""
    deduplicate_s: Annotated[float, Range(0, 86_400)] = 300.0
    """Time in which at most one notification about the same code and subject is sent."""
    quiet_from: Hour = ""
    """Local time at which quiet hours begin. Messages wait until their end. Empty: no quiet hours."""
    quiet_until: Hour = ""
    """Local time at which quiet hours end. Empty: no quiet hours."""
    timezone: Zone = "UTC"
    """Time zone of the quiet hours."""


@dataclass(frozen=True, slots=True)
class NotifyKeys:
    """Notifications by webhook, by e-mail or through a program."""

    channels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Channels by name: one table `[notify.channels.NAME]` each, with the keys of its `kind`."""
    rules: tuple[NotifyRuleKeys, ...] = ()
    cluster: Annotated[str, Form(r"[A-Za-z0-9_-]{1,64}", "ASCII letters, digits, '-' or '_'")] = "trimtab"
    """Name of the cluster in messages."""
    attempts_max: Annotated[int, Range(1, 10_000)] = 100
    """Attempts after which a message is given up."""
    give_up_s: Annotated[float, Range(1, 604_800)] = 86_400.0
    """Age at which a message that fails is given up."""
    waiting_max: Annotated[int, Range(10, 100_000)] = 1_000
    """Most notifications that wait for one channel. Beyond it, the oldest are dropped."""
