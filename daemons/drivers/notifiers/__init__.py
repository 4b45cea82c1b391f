"""Channels of notifications, found among the entry points `trimtab.notifiers`: what they are configured with, and what
sends over them."""

from __future__ import annotations

from daemons.drivers.notifiers.configured import make_channels, notify_of
from daemons.drivers.notifiers.sending import Sender

__all__ = ["Sender", "make_channels", "notify_of"]
