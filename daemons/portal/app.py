"""The application: every page behind its guards, and what the pages share."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import jinja2
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.templating import Jinja2Templates
from starlette.types import ASGIApp

from daemons.portal import words
from daemons.portal.desk import Desk, Refused, Unreachable
from daemons.portal.doors import Doors
from daemons.portal.guard import Guard, Rules, TooLarge, TooSlow
from daemons.portal.limits import AddressLimits
from daemons.portal.live import Live
from daemons.portal.page import MENU, Entry, guarded, page, route_of, status_of
from daemons.portal.pages import (
    accounts,
    audit,
    by_hand,
    decision,
    environments,
    forecast,
    jobs,
    login,
    nodes,
    notices,
    now,
    reports,
    second_factor,
    stream,
    submit,
    vms,
    web_apps,
    what_if,
)
from daemons.portal.pictures import Pictures
from daemons.portal.runs import Runs
from daemons.portal.texts import Texts
from daemons.portal.threads import Threads
from daemons.portal.workshop import Workshop
from shared.errors import StoreUnavailable
from shared.logs import get_logger

if TYPE_CHECKING:
    from daemons.store.reading import Reading

HERE = Path(__file__).parent
READING_THREADS = 8
FORM_THREADS = 1  # they hold the interpreter: more would slow every answer
STATIC_CACHE = "public, max-age=3600"

# Each module has ROUTES.
PAGES: tuple[ModuleType, ...] = (
    login,
    second_factor,
    accounts,
    stream,
    now,
    nodes,
    jobs,
    web_apps,
    submit,
    vms,
    by_hand,
    decision,
    environments,
    forecast,
    what_if,
    reports,
    notices,
    audit,
)

TITLES = {
    400: "That cannot be read",
    401: "Log in first",
    403: "Not allowed",
    404: "There is no such page",
    405: "That cannot be done here",
    503: "At the moment that cannot be shown",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the pages are told of the configuration. `read_only`: nothing of the cluster is changed. `readers_max`: how
    many browsers may listen for changes. `public_url`: where browsers reach the portal, without a slash at the end."""

    public_url: str = "https://localhost"
    read_only: bool = False
    readers_max: int = 100


@cache
def page_templates() -> Jinja2Templates:
    """The templates, which are compiled once: everything is escaped, and a name that is missing is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # else the file of each template that is used is looked at again
    )
    environment.filters.update(words.FILTERS)
    return Jinja2Templates(env=environment)


@dataclass(slots=True)
class Portal:
    """What the pages share."""

    desk: Desk
    live: Live
    doors: Doors
    rules: Rules
    settings: Settings = field(default_factory=Settings)
    reading: Reading | None = None
    templates: Jinja2Templates = field(default_factory=page_templates)
    threads: Threads = field(default_factory=lambda: Threads(READING_THREADS, "history"))
    limits: AddressLimits = field(default_factory=AddressLimits)
    forms: Threads = field(default_factory=lambda: Threads(FORM_THREADS, "forms"))
    texts: Texts = field(default_factory=Texts)
    pictures: Pictures = field(default_factory=Pictures)
    spans: Workshop = field(default_factory=lambda: Workshop("reports", 0))  # reads long ones, for somebody who waits
    runs: Runs | None = None
    menu: tuple[Entry, ...] = ()
    readers: int = 0
    readers_of: Counter[str] = field(default_factory=Counter)  # by account


def app(portal: Portal, pages: tuple[ModuleType, ...] = PAGES) -> Starlette:
    """The portal as an ASGI application."""
    routes: list[Any] = [Mount("/static", _Static(directory=HERE / "static"), name="static")]
    for module in pages:
        routes += [_behind_guard(route) for route in module.ROUTES]
    made = _Guarded(portal, routes=routes, exception_handlers=WRONG, lifespan=_lifespan)
    made.router.redirect_slashes = False
    made.state.portal = portal
    paths = {route.path for route in routes if isinstance(route, Route)}
    portal.menu = tuple(entry for entry in MENU if entry.path in paths)
    return made


class _Guarded(Starlette):
    """An application with the guard outside everything, the page that tells of a defect included."""

    def __init__(self, whole: Portal, **named: Any) -> None:
        self._whole = whole
        super().__init__(**named)

    def build_middleware_stack(self) -> ASGIApp:
        return Guard(super().build_middleware_stack(), self._whole.rules, self._whole.limits)


def _behind_guard(route: Route) -> Route:
    methods = sorted(route.methods or ())
    return Route(route.path, guarded(route.endpoint), methods=methods, name=route.name)


@asynccontextmanager
async def _lifespan(made: Starlette) -> AsyncIterator[None]:
    yield
    whole: Portal = made.state.portal
    whole.doors.close()
    whole.threads.close()
    whole.forms.close()
    whole.texts.close()
    whole.pictures.workshop.close()
    whole.spans.close()
    if whole.runs is not None:
        whole.runs.close()


class _Static(StaticFiles):
    """Files that browsers may keep for a while."""

    def file_response(self, *arguments: Any, **named: Any) -> Response:
        answer = super().file_response(*arguments, **named)
        answer.headers["cache-control"] = STATIC_CACHE
        return answer


# --- what goes wrong ------------------------------------------------------------------------------------------------


def _said(request: Request, status: int, title: str, detail: str) -> Response:
    return page(request, "refused.html", status, title=title, detail=detail)


async def _refused_by_us(request: Request, error: HTTPException) -> Response:
    detail = error.detail if error.status_code in (400, 403) or error.detail.endswith(".") else ""
    return _said(request, error.status_code, TITLES.get(error.status_code, "That did not work"), detail)


async def _refused(request: Request, error: Refused) -> Response:
    return _said(request, status_of(error), "The controller refused that", error.detail or error.code)


async def _unreachable(request: Request, error: Unreachable) -> Response:
    return _said(request, 503, TITLES[503], f"Nobody answers: {error.why}. This page comes back by itself.")


async def _store_away(request: Request, error: StoreUnavailable) -> Response:
    get_logger("portal").error("the store does not answer", error=str(error))
    return _said(request, 503, TITLES[503], "The store does not answer. What is shown live is on the other pages.")


async def _too_large(request: Request, error: TooLarge) -> Response:
    answer = _said(request, 413, "That is too large", str(error))
    answer.headers["connection"] = "close"  # the rest is not read
    return answer


async def _too_slow(request: Request, _: TooSlow) -> Response:
    return _said(request, 408, "That took too long", "The request did not arrive in time.")


async def _gone(_request: Request, _: ClientDisconnect) -> Response:
    return Response(status_code=400)  # nobody is there to see it


async def _defect(request: Request, error: Exception) -> Response:
    if getattr(request.state, "gave_up", False):
        return Response(status_code=408)  # nobody is there to see it
    get_logger("portal").error("defect", route=route_of(request), error=type(error).__name__, exc_info=error)
    return _said(request, 500, "A defect", "The page could not be made; the portal's log says why.")


WRONG: dict[Any, Callable[[Request, Any], Awaitable[Response]]] = {
    HTTPException: _refused_by_us,
    Refused: _refused,
    Unreachable: _unreachable,
    StoreUnavailable: _store_away,
    TooLarge: _too_large,
    TooSlow: _too_slow,
    ClientDisconnect: _gone,
    Exception: _defect,
}
