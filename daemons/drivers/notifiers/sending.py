"""Sends messages off the core's thread: each channel in a lane of its own, so that none waits for another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from daemons.drivers.notifiers.later import TryLater
from shared.base.errors import PermanentError, TransientError
from shared.ports.controller import NotifyChannel
from shared.ports.effects import Effect
from shared.ports.notices import Notified, Notify
from shared.runtime.lanes import Lane

NO_CHANNEL = "this channel is not configured any more"


class Sender:
    """Carries out `Notify` effects; `post` takes the answers. The core sends one message of a channel at a time, so a
    lane holds one at most. Any error of a channel becomes an answer: it must not end the controller."""

    def __init__(
        self,
        channels: Mapping[str, NotifyChannel],
        lane: Callable[[str], Lane],
        post: Callable[[Notified], None],
    ) -> None:
        self._channels, self._lane, self._post = channels, lane, post
        self._lanes: dict[str, Lane] = {}

    @property
    def carries(self) -> dict[type[Effect], Callable[[Any], None]]:
        """What carries out which effect."""
        return {Notify: self.send}

    def send(self, effect: Notify) -> None:
        """Have a message sent."""
        channel = self._channels.get(effect.channel)
        if channel is None:
            self._post(Notified(effect.channel, effect.message, False, True, NO_CHANNEL))
            return
        if effect.channel not in self._lanes:
            self._lanes[effect.channel] = self._lane(f"notify {effect.channel}")
        self._lanes[effect.channel].do(partial(self._send, channel, effect))

    def _send(self, channel: NotifyChannel, effect: Notify) -> None:
        ok, final, after_s = False, False, 0.0
        try:
            ok, detail = True, channel.send(effect)
        except TransientError as error:
            detail, after_s = str(error), error.after_s if isinstance(error, TryLater) else 0.0
        except PermanentError as error:
            final, detail = True, str(error)
        except Exception as error:  # noqa: BLE001  a channel of somebody else's may raise anything
            detail = f"{type(error).__name__} in {type(channel).__name__}"  # not what it says: that may hold a secret
        self._post(Notified(effect.channel, effect.message, ok, final, detail, after_s))
