"""The application: every page behind its guards, and what the pages share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from daemons.portal.client.controller_client import Refused, Unreachable
from daemons.portal.context import HERE, MENU, Portal, guarded, page, route_of, status_of
from daemons.portal.http.middleware import HttpMiddleware, TooLarge, TooSlow
from daemons.portal.pages import (
    accounts,
    audit,
    decision,
    environments,
    forecast,
    jobs,
    login,
    nodes,
    notices,
    operator_actions,
    overview,
    reports,
    second_factor,
    stream,
    submit,
    vm_fit,
    vms,
    web_apps,
    what_if,
)
from shared.base.errors import StoreUnavailable
from shared.runtime.logs import get_logger

if TYPE_CHECKING:
    pass


STATIC_CACHE = "public, max-age=3600"


# Each module has ROUTES.
PAGES: tuple[ModuleType, ...] = (
    login,
    second_factor,
    accounts,
    stream,
    overview,
    nodes,
    jobs,
    web_apps,
    submit,
    vms,
    vm_fit,
    operator_actions,
    decision,
    environments,
    forecast,
    what_if,
    reports,
    notices,
    audit,
)


TITLES = {
    400: "Bad request",
    401: "Log in first",
    403: "Not allowed",
    404: "Page not found",
    405: "Method not allowed",
    503: "Temporarily unavailable",
}


def app(portal: Portal, pages: tuple[ModuleType, ...] = PAGES) -> Starlette:
    """Return the portal as an ASGI application."""
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
    """An application with the guard outside everything, including the page that reports a defect."""

    def __init__(self, whole: Portal, **named: Any) -> None:
        self._whole = whole
        super().__init__(**named)

    def build_middleware_stack(self) -> ASGIApp:
        return HttpMiddleware(super().build_middleware_stack(), self._whole.rules, self._whole.limits)


def _behind_guard(route: Route) -> Route:
    methods = sorted(route.methods or ())
    return Route(route.path, guarded(route.endpoint), methods=methods, name=route.name)


@asynccontextmanager
async def _lifespan(made: Starlette) -> AsyncIterator[None]:
    yield
    whole: Portal = made.state.portal
    whole.authentication.close()
    whole.threads.close()
    whole.forms.close()
    whole.texts.close()
    whole.pictures.process_pool.close()
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
    return _said(request, error.status_code, TITLES.get(error.status_code, "Request failed"), detail)


async def _refused(request: Request, error: Refused) -> Response:
    return _said(request, status_of(error), "Refused by the controller", error.detail or error.code)


async def _unreachable(request: Request, error: Unreachable) -> Response:
    return _said(request, 503, TITLES[503], f"Controller unreachable: {error.why}. Reload the page later.")


async def _store_away(request: Request, error: StoreUnavailable) -> Response:
    get_logger("portal").error("store unavailable", error=str(error))
    return _said(request, 503, TITLES[503], "The store is unavailable. Pages with live data still work.")


async def _too_large(request: Request, error: TooLarge) -> Response:
    answer = _said(request, 413, "Too large", str(error))
    answer.headers["connection"] = "close"  # the rest is not read
    return answer


async def _too_slow(request: Request, _: TooSlow) -> Response:
    return _said(request, 408, "Request timed out", "The request did not arrive in time.")


async def _gone(_request: Request, _: ClientDisconnect) -> Response:
    return Response(status_code=400)  # nobody is there to see it


async def _defect(request: Request, error: Exception) -> Response:
    if getattr(request.state, "gave_up", False):
        return Response(status_code=408)  # nobody is there to see it
    get_logger("portal").error("defect", route=route_of(request), error=type(error).__name__, exc_info=error)
    return _said(request, 500, "Internal error", "The page could not be generated. The portal's log has the details.")


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
