"""Charts of pages as pictures: drawn in a process of their own, a few at a time, and kept by what they show."""

from __future__ import annotations

import asyncio
import hashlib
import pickle
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Generic, Protocol, TypeVar

from markupsafe import Markup

from daemons.portal.process_pool import ProcessPool
from daemons.report.charts import Chart, Series, Style, thinned
from daemons.report.draw import HEIGHT_PX, WIDTH_PX, can_draw, svg

CHARTS_BYTES_MAX, DRAWN_BYTES_MAX = 32 << 20, 32 << 20
SEEN_MAX = 100  # charts that are not packed again for the next reader: those of some reports
POINTS_MAX = 2 * WIDTH_PX
NICENESS = 4  # more than the portal
NARROW_PX = 390
_NARROW, _DARK = "(max-width: 40rem)", "(prefers-color-scheme: dark)"  # as in the style sheet


@dataclass(frozen=True, slots=True)
class ChartVariant:
    """How a picture is drawn, and in which windows it is the one that is shown ("": where no other is)."""

    theme: str
    width_px: int
    media: str = ""


# Every one that may be asked for; the first whose windows are meant is shown.
LOOKS: Mapping[str, ChartVariant] = {
    "narrow-dark": ChartVariant("dark", NARROW_PX, f"{_NARROW} and {_DARK}"),
    "narrow": ChartVariant("light", NARROW_PX, _NARROW),
    "dark": ChartVariant("dark", WIDTH_PX, _DARK),
    "light": ChartVariant("light", WIDTH_PX),
}


def picture_html(url: Callable[[str], str], title: str, height_px: int) -> Markup:
    """Return the element that shows a picture in the look that a window asks for. `url` gives the address of each."""
    parts = []
    for name, look in LOOKS.items():
        size = f'width="{look.width_px}" height="{height_px}"'
        if look.media:
            parts.append(f'<source media="{look.media}" srcset="{escape(url(name))}" {size}>')
        else:
            parts.append(f'<img src="{escape(url(name))}" alt="{escape(title)}" {size} loading="lazy">')
    return Markup(f"<picture>{''.join(parts)}</picture>")


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart that may be asked for as `/charts/ID.LOOK.svg`, in each of `LOOKS`."""

    id: str
    title: str

    @property
    def markup(self) -> Markup:
        """The element that shows it."""
        return picture_html(lambda look: f"/charts/{self.id}.{look}.svg", self.title, HEIGHT_PX)


class _Sized(Protocol):
    def __len__(self) -> int: ...


V = TypeVar("V", bound=_Sized)


class _ByteBoundedCache(Generic[V]):
    """Keeps what was last wanted, of at most so many bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: OrderedDict[Any, V] = OrderedDict()

    def get(self, key: Any) -> V | None:
        """Return the value kept under a key."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: Any, value: V) -> None:
        """Keep a value; those that nobody has wanted longest go."""
        before = self._kept.pop(key, None)
        self._bytes += len(value) - (0 if before is None else len(before))
        self._kept[key] = value
        while self._bytes > self._bytes_max and len(self._kept) > 1:
            self._bytes -= len(self._kept.popitem(last=False)[1])


class Pictures:
    """Draws charts, in a process pool. A chart's id is a keyed hash of it: only a client that was shown the chart can
    name it."""

    def __init__(self, process_pool: ProcessPool | None = None) -> None:
        self.process_pool = ProcessPool("drawings", NICENESS) if process_pool is None else process_pool
        self._secret = secrets.token_bytes(32)
        self._draws = can_draw()
        self._seen: OrderedDict[int, tuple[Chart, Picture]] = OrderedDict()  # by `id`, the chart's own while it is here
        self._charts: _ByteBoundedCache[bytes] = _ByteBoundedCache(CHARTS_BYTES_MAX)
        self._drawn: _ByteBoundedCache[bytes] = _ByteBoundedCache(DRAWN_BYTES_MAX)
        self._in_progress: dict[tuple[str, str], asyncio.Task[bytes]] = {}

    def keep(self, chart: Chart) -> Picture | None:
        """Have a chart ready to be asked for; None where nothing can be drawn, or there is nothing to draw."""
        if chart.is_empty or not self._draws:
            return None
        _, picture = self._seen.get(id(chart), (chart, None))
        if picture is not None and self._charts.get(picture.id) is not None:
            return picture
        thin = replace(chart, series=tuple(thinned(each, POINTS_MAX) for each in chart.series))
        packed = pickle.dumps(thin)
        picture = Picture(hashlib.blake2b(packed, key=self._secret, digest_size=16).hexdigest(), chart.title)
        self._charts.put(picture.id, packed)
        self._seen[id(chart)] = chart, picture
        while len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        return picture

    async def svg(self, id: str, look: str) -> bytes | None:
        """Return the drawing of a chart; None for one that is not kept, and for an unknown look. Raises `TooBusy`."""
        key = (id, look)
        drawn = self._drawn.get(key)
        packed = self._charts.get(id)
        if drawn is not None or packed is None or look not in LOOKS:
            return drawn
        task = self._in_progress.get(key)
        if task is None:
            task = self._in_progress[key] = asyncio.create_task(self.process_pool.do(_draw, packed, look))
            task.add_done_callback(lambda _: self._in_progress.pop(key, None))
        drawn = await asyncio.shield(task)
        self._drawn.put(key, drawn)
        return drawn

    async def warm(self) -> None:
        """Have what drawing needs read before somebody waits for it; that takes seconds."""
        if self._draws:
            with suppress(BrokenProcessPool):  # the request for a picture reports it
                await self.process_pool.do(_warm)


def _warm() -> None:
    svg(Chart("warm", "", "", series=(Series("", (0.0, 1.0), (0.0, 1.0), style=Style.LINE),)))


def _draw(packed: bytes, look: str) -> bytes:
    chart: Chart = pickle.loads(packed)  # packed by `keep`
    return svg(chart, LOOKS[look].theme, LOOKS[look].width_px).encode()
