"""What the controller shows, for all readers together: asked at most once a second for each view, kept when nobody
answers."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from daemons.controller.views.jobs import NOT_OVER
from daemons.portal.auth.accounts import Account
from daemons.portal.client.controller_client import ControllerClient, Refused, Unreachable
from daemons.portal.outage import Outage

FRESH_S = 1.0  # an answer is given again for so long
PATIENCE_S = 0.1  # how long a reader waits for a newer answer than the one that is there
OUTDATED_S = 1.0  # the same after something was done
TROUBLED_S = 2.0  # and for any answer, when nobody answered the last time
LOAD = 8.0  # what takes the controller long is asked for less often: the pause is so many times as long as that took
LOAD_UNWATCHED = 20.0  # the same of what nobody waits for changes of
JUDGED_BY = 3  # last answers, by the quickest of which both are judged: one alone may have waited for something else
TICKS = 4  # in a period: what is due is asked for at the next one
PAUSES = 2  # in a period: a reader hears of changes so often at most; whole periods would be lost after a late answer
ROWS_MAX = 10_000
ROWS_MIN = 100
GROWS_AFTER = 60  # answers that fitted, before twice as many rows are asked for again
OF_PROVIDER = {"jobs": NOT_OVER}  # what the provider's pages are shown unless they name a subject: 30 days are too many
KEPT_MAX = 400  # views of one account and subject each
FORGET_S = 600.0
AGEING_S = (
    10.0  # without a controller, open pages get an event after this time, so that they show the age of their data
)
VOLATILE = ("at_s",)  # what differs although nothing has changed
LIVE_VIEWS = ("status", "nodes", "jobs", "web-apps", "environments", "plan", "doctor")
Key = tuple[str, str, str]  # account, view, subject


@dataclass(frozen=True, slots=True)
class CachedView:
    """A view as it was `age_s` ago. `trouble`: why there is nothing newer ("": there need not be)."""

    data: dict[str, Any]
    at_s: float
    age_s: float
    trouble: str = ""


@dataclass(slots=True)
class _View:
    """The known state of one view. `revision` increases whenever its data change."""

    data: dict[str, Any] | None = None
    at_s: float = 0.0
    wanted_s: float = 0.0
    revision: int = 0
    refused: Refused | None = None
    times_s: deque[float] = field(default_factory=lambda: deque(maxlen=JUDGED_BY))
    task: asyncio.Task[None] | None = None
    trouble: Outage | None = None
    limit: int = ROWS_MAX
    fitted: int = 0  # answers since the limit was last changed
    outdated: bool = False  # something was done since

    def is_due(self, now_s: float, load: float = LOAD) -> bool:
        """Return whether the view is due for another request."""
        took_s = min(self.times_s, default=0.0)
        return self.task is None and not 0.0 <= now_s - self.wanted_s < max(FRESH_S, load * took_s)


@dataclass(slots=True)
class _Watch:
    """One reader's subscription, to hear of changes."""

    keys: tuple[Key, ...]
    told: dict[Key, int] = field(default_factory=dict)


class ViewCache:
    """Views for the pages. Accounts of the provider share what the portal asks as itself; owners and users are shown
    what the controller shows them.

    For one event loop. `watch` makes views be asked for once a second as long as somebody listens.
    """

    def __init__(self, controller_client: ControllerClient, period_s: float = 1.0) -> None:
        self._controller_client = controller_client
        self._period_s = period_s
        self._views: OrderedDict[Key, _View] = OrderedDict()
        self._watched: Counter[Key] = Counter()
        self._swept_s = controller_client.now_s()
        self._doings = 0  # how often something was done that may have changed what is shown
        self._changed = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None
        self.trouble: Outage | None = None

    def _key(self, account: Account | None, what: str, subject: str) -> Key:
        own = account is None or account.is_provider
        return (self._controller_client.own if own or account is None else account.sender, what, subject)

    async def view(self, account: Account, what: str, subject: str = "") -> CachedView:
        """Return a view as the account sees it: the cached one if it is at most a second old, else a newer one, else
        the cached one with its age. Raises `Refused`, and `Unreachable` when nothing is cached."""
        view = await self._newest(self._key(account, what, subject))
        if view.refused is not None:
            raise view.refused
        if view.data is None:
            trouble = (
                view.trouble
                or self.trouble
                or Outage(self._controller_client.now_s(), "the controller has not answered yet")
            )
            raise Unreachable(trouble.since_s, trouble.why)
        why = view.trouble.why if view.trouble is not None else ""
        return CachedView(view.data, view.at_s, max(self._controller_client.now_s() - view.at_s, 0.0), why)

    async def views(self, account: Account, *whats: str) -> tuple[CachedView, ...]:
        """Several views, asked for at the same moment. Raises as `view`."""
        return tuple(await asyncio.gather(*(self.view(account, what) for what in whats)))

    def forget(self) -> None:
        """Mark all views as outdated after a change, which may have affected everything: the next read requests them
        again."""
        self._doings += 1
        for view in self._views.values():
            view.wanted_s, view.task, view.outdated = float("-inf"), None, True

    async def _newest(self, key: Key) -> _View:
        now_s = self._controller_client.now_s()
        view = self._views.setdefault(key, _View(wanted_s=float("-inf")))
        self._views.move_to_end(key)
        self._drop()
        if view.is_due(now_s, LOAD if key in self._watched else LOAD_UNWATCHED):
            view.wanted_s = now_s
            view.task = asyncio.create_task(self._ask(key, view))
        patience_s = self._patience_s(key, view)
        if view.task is not None and patience_s != 0.0:
            await asyncio.wait([view.task], timeout=patience_s)
        return view

    def _patience_s(self, key: Key, view: _View) -> float | None:
        """Return how long a reader waits for an answer in progress. A watched view is recent enough, and its changes
        are notified."""
        if view.data is None and view.refused is None:
            return TROUBLED_S if self.trouble is not None else None
        if view.outdated:
            return OUTDATED_S
        return 0.0 if key in self._watched and self.trouble is None else PATIENCE_S

    async def _ask(self, key: Key, view: _View) -> None:
        """Ask once; what comes of it is in the view, unless what was done meanwhile has made it old."""
        account, what, subject = key
        begun_s, doings = self._controller_client.now_s(), self._doings
        try:
            subject = subject or (OF_PROVIDER.get(what, "") if account == self._controller_client.own else "")
            found: dict[str, Any] | Refused = await self._fitting(view, account, what, subject)
        except Refused as refused:
            found = refused
        except Unreachable as error:
            if self.trouble is None:
                self.trouble = Outage(error.since_s, error.why)
                self._tell()
            view.trouble = self.trouble = replace(self.trouble, why=error.why)
            return
        finally:
            if view.task is asyncio.current_task():
                view.task = None
        recovered, self.trouble = self.trouble is not None, None
        if doings == self._doings or view.data is None:
            view.times_s.append(max(self._controller_client.now_s() - begun_s, 0.0))
            if self._changes(view, found) or recovered:
                view.revision += 1
                self._tell()

    async def _fitting(self, view: _View, account: str, what: str, subject: str) -> dict[str, Any]:
        """Return a view of as many rows as fit into an answer; a larger number is retried now and then. Raises as
        `ControllerClient.view`."""
        if view.limit < ROWS_MAX and view.fitted >= GROWS_AFTER:
            view.limit, view.fitted = min(2 * view.limit, ROWS_MAX), 0
        while True:
            try:
                found = await self._controller_client.view(account, what, subject, view.limit)
            except Refused as refused:
                if refused.code != "too-large" or view.limit <= ROWS_MIN:
                    raise
                view.limit, view.fitted = view.limit // 2, 0
            else:
                view.fitted += 1
                return found

    def _changes(self, view: _View, found: dict[str, Any] | Refused) -> bool:
        """Take an answer; whether it says something else than the one before."""
        view.trouble, view.outdated = None, False
        if isinstance(found, Refused):
            changed = view.refused is None or str(view.refused) != str(found)
            view.refused, view.data = found, None
            return changed
        changed = view.data is None or _content(view.data) != _content(found)
        view.data, view.at_s, view.refused = found, self._controller_client.now_s(), None
        return changed

    def _drop(self) -> None:
        """Keep the table bounded: those that nobody has looked at longest go, after `FORGET_S` or when there are too
        many, but what the provider sees stays."""
        now_s = self._controller_client.now_s()
        if self.trouble is None and now_s - self._swept_s >= FORGET_S:
            self._swept_s = now_s
            for key, view in list(self._views.items()):
                is_old = view.task is None and view.at_s < now_s - FORGET_S and key not in self._watched
                has_answer = view.data is not None or view.refused is not None  # else it was asked for just now
                if is_old and has_answer and (key[2] or key[0] != self._controller_client.own):
                    del self._views[key]
        if len(self._views) <= KEPT_MAX:
            return
        for key in list(self._views):
            if key[2] or key[0] != self._controller_client.own:
                del self._views[key]
            if len(self._views) <= KEPT_MAX:
                return

    # --- changes ----------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self, timeout_s: float) -> bool:
        """Wait until any view has changed, not longer than `timeout_s`; whether one has."""
        event = self._changed
        try:
            await asyncio.wait_for(event.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def watch(self, account: Account, whats: Iterable[str], silence_s: float) -> AsyncGenerator[tuple[str, ...]]:
        """Yield the names of views that have changed, at most twice a period; () when nothing has changed for
        `silence_s`, as a sign of life. The name "trouble" means that the controller started or stopped answering, or
        that it does not answer and the known data are older."""
        watch = _Watch(tuple(self._key(account, what, "") for what in whats))
        with self._watching(watch):
            watch.told = self._revisions(watch)
            trouble = self.trouble
            while True:
                await self.changed(silence_s if trouble is None else min(silence_s, AGEING_S))
                now = self._revisions(watch)
                names = [key[1] for key in watch.keys if now[key] != watch.told[key]]
                if trouble is not None or self.trouble is not None:
                    names.append("trouble")
                watch.told, trouble = now, self.trouble
                yield tuple(names)
                if names:
                    await asyncio.sleep(self._period_s / PAUSES)

    def _revisions(self, watch: _Watch) -> dict[Key, int]:
        return {key: self._views[key].revision if key in self._views else 0 for key in watch.keys}

    @contextmanager
    def _watching(self, watch: _Watch) -> Iterator[None]:
        self._watched.update(watch.keys)
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            self._watched.subtract(watch.keys)
            self._watched += Counter()  # drops what nobody watches
            if not self._watched and self._polling is not None:
                self._polling.cancel()
                self._polling = None

    async def _poll(self) -> None:
        """Ask for what is watched as soon as it is due."""
        while True:
            for key in list(self._watched):
                view = self._views.setdefault(key, _View(wanted_s=float("-inf")))
                if view.is_due(self._controller_client.now_s() + self._period_s / 10):
                    view.wanted_s = self._controller_client.now_s()
                    view.task = asyncio.create_task(self._ask(key, view))
            await asyncio.sleep(self._period_s / TICKS)


def _content(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in VOLATILE}
