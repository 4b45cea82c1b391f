"""The context of the pages: who sent the request, what they may do, and how pages answer.

A handler is `async def x(request: Request) -> Response`. `app.py` wraps each in `guarded`. Without a session it is not
reached (unless marked `for_everybody`), and a change is accepted only from one of the portal's forms.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

import jinja2
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.templating import Jinja2Templates
from starlette.types import Message, Scope

from daemons.access.identity import Role
from daemons.portal.auth import refusals
from daemons.portal.auth.accounts import Account
from daemons.portal.auth.authentication import Authentication
from daemons.portal.auth.sessions import Session, form_word
from daemons.portal.client.controller_client import ControllerClient, Refused, Unreachable
from daemons.portal.client.view_cache import ViewCache
from daemons.portal.forms.texts import NotUnderstood, Texts
from daemons.portal.http.limits import AddressLimits
from daemons.portal.http.middleware import BODY_BYTES_MAX, FORM_BYTES_MAX, OPEN_BYTES_MAX, Rules, TooLarge, is_foreign
from daemons.portal.present import formatting
from daemons.portal.present.charts import Pictures
from daemons.portal.process_pool import ProcessPool
from daemons.portal.threads import Threads
from daemons.portal.what_if.runs import Runs
from shared.base.errors import InvalidInput, InvalidValue, Problem, StoreUnavailable
from shared.config.records import PROBLEMS_MAX
from shared.protocol.account_messages import WHY_LENGTH_MAX
from shared.protocol.operator_messages import Request as BusRequest

if TYPE_CHECKING:
    from daemons.store.reading import Reading
if TYPE_CHECKING:
    from daemons.store.reading import Reading


HERE = Path(__file__).parent
READING_THREADS = 8
FORM_THREADS = 1  # they hold the interpreter: more would slow every answer
Handler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")
FORM_COOKIE = "__Host-trimtab-form"
FLASH_COOKIE = "__Host-trimtab-said"
STATUS = {
    "not-allowed": 403,
    "unreachable": 503,
    "no-such-plan": 409,  # of a form: another decision took its place while somebody read it
}
LOGIN = "/login"
SECOND_FACTOR = "/account/second-factor"
TOO_OLD = "The form has expired. Go back, reload the page and try again."


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the menu: shown to these roles where the page is there."""

    title: str
    path: str
    roles: frozenset[Role] = frozenset(Role)


PROVIDER = frozenset({Role.PROVIDER})
OWNERS = frozenset({Role.PROVIDER, Role.OWNER})
MENU = (
    Entry("Now", "/"),
    Entry("Decision", "/decision", PROVIDER),
    Entry("Nodes", "/nodes", PROVIDER),
    Entry("Workloads", "/workloads"),
    Entry("VMs", "/vms", PROVIDER),
    Entry("Environments", "/environments"),
    Entry("What if", "/what-if", PROVIDER),
    Entry("Reports", "/reports", PROVIDER),
    Entry("Notifications", "/notifications", PROVIDER),
    Entry("Audit", "/audit", PROVIDER),
    Entry("Accounts", "/accounts", PROVIDER),
)


# --- who asks -------------------------------------------------------------------------------------------------------


def portal(request: Request) -> Portal:
    """Return the portal that the page belongs to."""
    found: Portal = request.app.state.portal
    return found


def session(request: Request) -> Session | None:
    """Return the session of the request; None on pages for everybody."""
    found: Session | None = getattr(request.state, "session", None)
    return found


def account(request: Request) -> Account:
    """Return the account of the request."""
    found = session(request)
    if found is None:
        raise HTTPException(401)
    return found.account


def route_of(request: Request) -> str:
    """Return the route of a request as it is declared, such as "/link/{word}": its actual values must not appear in a
    log."""
    routes = (each for each in request.app.routes if isinstance(each, Route))
    return next((each.path for each in routes if each.matches(request.scope)[0] is Match.FULL), "")


def address(request: Request) -> str:
    """Return the address that the request came from."""
    return str(getattr(request.state, "address", ""))


def for_everybody(handler: Handler) -> Handler:
    """Mark a handler that needs no login."""
    handler.for_everybody = True  # type: ignore[attr-defined]
    return handler


def before_second_factor(handler: Handler) -> Handler:
    """Mark a handler that an account may use before it has set up its required second factor."""
    handler.before_second_factor = True  # type: ignore[attr-defined]
    return handler


def while_read_only(handler: Handler) -> Handler:
    """Mark a handler that may be posted to in read-only mode: it changes nothing of the cluster."""
    handler.while_read_only = True  # type: ignore[attr-defined]
    return handler


def with_files(handler: Handler) -> Handler:
    """Mark a handler whose form holds texts of files: it may be larger than others."""
    handler.with_files = True  # type: ignore[attr-defined]
    return handler


def require(*roles: Role) -> Callable[[Handler], Handler]:
    """Let only accounts of these roles reach a handler; to others the page does not exist."""

    def decorate(handler: Handler) -> Handler:
        @wraps(handler)
        async def run(request: Request) -> Response:
            me = account(request)
            if me.role not in roles:
                await portal(request).authentication.refuse(request, me.sender, refusals.PAGE, route_of(request))
                raise HTTPException(404)
            return await handler(request)

        return run

    return decorate


def guarded(handler: Handler) -> Handler:
    """Wrap the handler with the login and the check of forms."""
    everybody = getattr(handler, "for_everybody", False)
    early = everybody or getattr(handler, "before_second_factor", False)
    harmless = getattr(handler, "while_read_only", False)
    bytes_max = BODY_BYTES_MAX if getattr(handler, "with_files", False) else FORM_BYTES_MAX
    if everybody:
        bytes_max = OPEN_BYTES_MAX

    @wraps(handler)
    async def run(request: Request) -> Response:
        found = await portal(request).authentication.enter(request)
        request.state.session = found
        if found is None and not everybody:
            return _to_login(request)
        if found is not None:
            portal(request).limits.known.add(address(request), asyncio.get_running_loop().time())
            if not early and portal(request).authentication.must_enrol(found):
                return RedirectResponse(SECOND_FACTOR, 303)
        if request.method != "POST":
            return await handler(request)
        if int(request.headers.get("content-length", "0")) > bytes_max:
            raise TooLarge(bytes_max)
        request.state.body.bytes_max = bytes_max
        try:
            await check_form(request)
            if portal(request).settings.read_only and not harmless:
                return page(request, "refused.html", 403, title="Read-only", detail="This portal is read-only.")
            return await handler(request)
        finally:
            if hasattr(request.state, "form"):
                await request.state.form.close()  # files that were sent

    return run


def _to_login(request: Request) -> Response:
    if request.method != "GET" or request.headers.get("hx-request"):
        return Response("Log in first.", 401, {"HX-Refresh": "true"}, "text/plain")
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(LOGIN if path == "/" else f"{LOGIN}?{urlencode({'to': path})}", 303)


def inside(path: str) -> str:
    """Return the path if it is a safe redirect within the portal; "/" for anything else."""
    good = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and "\\" not in path
    return path if good else "/"


# --- forms ----------------------------------------------------------------------------------------------------------


def csrf(request: Request) -> str:
    """Return the required value of the hidden field `csrf` in each form of this page."""
    found = session(request)
    return found.csrf if found is not None else form_word(request.cookies.get(FORM_COOKIE, "none"))


async def check_form(request: Request) -> None:
    """Raises 403 unless what is posted comes from a form that this portal gave to this browser."""
    found = session(request)
    if is_foreign(request.headers, portal(request).rules.origins):
        wrong = "The form was not sent from a page of this portal."
    elif found is None and FORM_COOKIE not in request.cookies:  # then nothing of it is read
        wrong = TOO_OLD
    else:
        given = str((await form(request)).get("csrf", ""))
        wrong = "" if hmac.compare_digest(given.encode(), csrf(request).encode()) else TOO_OLD
    if wrong and found is not None:
        await portal(request).authentication.refuse(request, found.account.sender, refusals.FORM, route_of(request))
    if wrong:
        raise HTTPException(403, wrong)


async def form(request: Request) -> FormData:
    """Return the posted form; a large one is parsed outside the event loop. Raises 400 if it is not a form, or not in
    UTF-8: texts from odd encodings cannot be encoded again."""
    if hasattr(request.state, "form"):
        found: FormData = request.state.form
        return found
    kind, named = parse_options_header(request.headers.get("content-type", ""))
    known = kind in (b"application/x-www-form-urlencoded", b"multipart/form-data")
    if not known or named.get(b"charset", b"utf-8").lower() != b"utf-8":
        raise HTTPException(400, "The request is not a form.")
    body = await request.body()
    if len(body) <= OPEN_BYTES_MAX:
        made = await _taken_apart(request.scope, body)
    else:
        made = await portal(request).forms.do(_taken_apart_here, request.scope, body)
    request.state.form = made
    return made


def _taken_apart_here(scope: Scope, body: bytes) -> FormData:
    """Parse the form in a thread."""
    return asyncio.run(_taken_apart(scope, body))


async def _taken_apart(scope: Scope, body: bytes) -> FormData:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return await Request(scope, receive).form(max_files=20, max_fields=500)


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form, as text without white space around it."""

    fields: Mapping[str, str]

    def text(self, name: str, default: str = "") -> str:
        """Return a field; `default` if it is missing or empty."""
        return self.fields.get(name, "").strip() or default

    def number(self, name: str, default: float | None = None) -> float | None:
        """Return a field as a number, `default` if it is missing or empty. Raises `InvalidValue`."""
        text = self.text(name)
        if not text:
            return default
        try:
            return float(text)
        except ValueError as error:
            raise InvalidValue(name, text[:60], "a number") from error

    def whole(self, name: str, default: int | None = None) -> int | None:
        """Return a field as a whole number, `default` if it is missing or empty. Raises `InvalidValue`."""
        text = self.text(name)
        if not text:
            return default
        try:
            return int(text)
        except ValueError as error:
            raise InvalidValue(name, text[:60], "a whole number") from error

    def need_typed(self, name: str, what: str) -> None:
        """Refuse what cannot be taken back unless `typed` is the name of the `what`, letter by letter. Raises
        `InvalidInput`."""
        if self.text("typed") != name:
            raise InvalidInput(Problem("typed", f"is not the name of the {what}", f"{name}, as confirmation"))


async def parsed(request: Request, call: Callable[..., T], *values: Any) -> T:
    """Return the result of `call`, a function of a module, for a text from a user. It runs in a process that is killed
    when it takes too long; one at a time for an account. Raises its errors, and `InvalidInput` for a call that is given
    up."""
    try:
        return await portal(request).texts.do(account(request).name, call, *values)
    except NotUnderstood as error:
        what = f"could not be parsed {error}"
        raise InvalidInput(
            Problem("text", what, "a simpler text, or another attempt when the portal is less busy")
        ) from error


async def fields(request: Request) -> Form:
    """Return the posted text fields; the last of several with one name. Files are left out: see `form`."""
    posted = await form(request)
    return Form({name: value for name, value in posted.items() if isinstance(value, str)})


# --- answers --------------------------------------------------------------------------------------------------------


def page(request: Request, template: str, status: int = 200, /, **data: Any) -> Response:
    """Return a template, rendered with `data` and with the values that `base.html` requires."""
    answer = portal(request).templates.TemplateResponse(request, template, frame(request) | data, status)
    if FLASH_COOKIE in request.cookies:
        answer.delete_cookie(FLASH_COOKIE, path="/", secure=True, httponly=True, samesite="lax")
    return answer


def frame(request: Request) -> dict[str, Any]:
    """Return the values that every template gets: `me`, `csrf`, `menu`, `must_enrol`, `here`, `trouble`, `said`,
    `read_only`, `asked`, `now_s`."""
    whole = portal(request)
    found = session(request)
    me = found.account if found is not None else None
    trouble = whole.live.trouble
    must_enrol = found is not None and whole.authentication.must_enrol(found)
    menu = [entry for entry in whole.menu if me is not None and me.role in entry.roles and not must_enrol]
    return {
        "me": me,
        "csrf": csrf(request),
        "menu": menu,
        "must_enrol": must_enrol,
        "here": request.url.path,
        "trouble": trouble,
        "trouble_age_s": None if trouble is None else max(whole.controller_client.now_s() - trouble.since_s, 0.0),
        "store_trouble": whole.authentication.trouble,
        "said": FLASHES.get(request.cookies.get(FLASH_COOKIE, ""), ""),
        "read_only": whole.settings.read_only,
        "asked": whole.authentication.asked if me is not None and me.is_provider else 0,
        "now_s": whole.controller_client.now_s(),
    }


FLASHES = {
    "done": "Done.",
    "sent": "Sent to the controller.",
    "saved": "Saved.",
    "logged-out": "You are logged out.",
}


def go(url: str, said: str = "done") -> Response:
    """Redirect after a form; `said`: a key of `FLASHES`, shown on the next page."""
    answer = RedirectResponse(quote(inside(url), safe="/?&=#%:+,@~"), 303)
    answer.set_cookie(FLASH_COOKIE, said, max_age=10, path="/", secure=True, httponly=True, samesite="lax")
    return answer


async def ask(request: Request, asked: BusRequest, why: str = "") -> Any:
    """Send a request to the controller for the logged-in account; return the data of its answer. Raises `Refused` and
    `Unreachable`."""
    whole = portal(request)
    try:
        return await whole.controller_client.ask(account(request).sender, asked, why[:WHY_LENGTH_MAX])
    finally:
        whole.live.forget()


def status_of(error: Refused) -> int:
    """Return the HTTP status for a refusal: anything that does not exist, or may not be seen, is not found."""
    return STATUS.get(error.code, 404 if error.code.startswith(("unknown-", "no-such-")) else 409)


async def act(
    request: Request,
    asked: BusRequest | Callable[[Form], BusRequest],
    done_url: str,
    *,
    again: Callable[[list[str], int], Awaitable[Response]] | None = None,
) -> Response:
    """Carry out what a form asks for, with its field `why`, then redirect to `done_url`.

    `asked` may be made from the form: what is wrong with that (`InvalidInput`, `InvalidValue`), and what the controller
    says when it refuses, is shown in words with status 422 or 409 (403 for what is not allowed, 503 when no controller
    answers): by `again(problems, status)` beside the form where that is given, else on a page of its own.
    """
    filled = await fields(request)
    try:
        wanted = asked(filled) if callable(asked) else asked
        await ask(request, wanted, filled.text("why"))
    except (InvalidInput, InvalidValue) as error:
        problems, status = problems_of(error), 422
    except Refused as error:
        problems, status = [error.detail or error.code], status_of(error)
    except Unreachable as error:
        problems, status = (
            [f"Controller unreachable: {error.why}. It may still be carried out. Check before you repeat it."],
            503,
        )
    else:
        return go(done_url, "sent")
    if again is not None:
        try:
            return await again(problems, status)
        except HTTPException as error:  # the subject of the form no longer exists: both problems are shown
            problems = [*problems, error.detail]
    return page(request, "refused.html", status, title="Not done", problems=problems, back=inside(done_url))


def problems_of(error: InvalidInput | InvalidValue) -> list[str]:
    """Return each problem in words."""
    return listed(error.problems) if isinstance(error, InvalidInput) else [str(error)]


def listed(problems: Sequence[Problem]) -> list[str]:
    """Problems in words, at most `PROBLEMS_MAX` of them."""
    more = [f"and {len(problems) - PROBLEMS_MAX} more"] if len(problems) > PROBLEMS_MAX else []
    return [str(problem) for problem in problems[:PROBLEMS_MAX]] + more


async def read(request: Request, look: Callable[[Reading], T]) -> T:
    """Look into the history beside the event loop. Raises `StoreUnavailable`, which is shown as a page (503), also for
    a store that is empty or of another version, and 404 where the portal has no history."""
    whole, history = portal(request), _history(request)
    with _as_unavailable():
        return await whole.threads.do(look, history)


async def read_aside(request: Request, look: Callable[..., T], *values: Any) -> T:
    """Run `look(url, *values)`, a slow function of a module, in a process of its own. Raises as `read`, and
    `TooBusy`."""
    whole, history = portal(request), _history(request)
    with _as_unavailable():
        return await whole.spans.do(look, history.url, *values)


def _history(request: Request) -> Reading:
    found = portal(request).reading
    if found is None:
        raise HTTPException(404, "No history is configured (history.url).")
    return found


@contextmanager
def _as_unavailable() -> Iterator[None]:
    """Raise `StoreUnavailable` if there has been no leader yet, or the controller is newer or older than the portal."""
    try:
        yield
    except InvalidInput as error:
        raise StoreUnavailable(str(error)) from error


@dataclass(frozen=True, slots=True)
class Settings:
    """The part of the configuration that pages use. `read_only`: nothing in the cluster is changed. `readers_max`: how
    many browsers may listen for changes. `public_url`: where browsers reach the portal, without a slash at the end."""

    public_url: str = "https://localhost"
    read_only: bool = False
    readers_max: int = 100


@cache
def page_templates() -> Jinja2Templates:
    """Return the templates, which are compiled once: everything is escaped, and a missing name is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # else the file of each template that is used is looked at again
    )
    environment.filters.update(formatting.FILTERS)
    return Jinja2Templates(env=environment)


@dataclass(slots=True)
class Portal:
    """What the pages share."""

    controller_client: ControllerClient
    live: ViewCache
    authentication: Authentication
    rules: Rules
    settings: Settings = field(default_factory=Settings)
    reading: Reading | None = None
    templates: Jinja2Templates = field(default_factory=page_templates)
    threads: Threads = field(default_factory=lambda: Threads(READING_THREADS, "history"))
    limits: AddressLimits = field(default_factory=AddressLimits)
    forms: Threads = field(default_factory=lambda: Threads(FORM_THREADS, "forms"))
    texts: Texts = field(default_factory=Texts)
    pictures: Pictures = field(default_factory=Pictures)
    spans: ProcessPool = field(
        default_factory=lambda: ProcessPool("reports", 0)
    )  # reads long ones, for somebody who waits
    runs: Runs | None = None
    menu: tuple[Entry, ...] = ()
    readers: int = 0
    readers_of: Counter[str] = field(default_factory=Counter)  # by account
