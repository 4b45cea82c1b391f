"""What if: a span of the history once more under another policy or parameter, in the background; what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.decision.overrides import alteration
from daemons.portal.context import account, fields, go, page, parsed, portal, problems_of, require, while_read_only
from daemons.portal.pages.reports import figure
from daemons.portal.present.spans import Span, span_of
from daemons.portal.process_pool import TooBusy
from daemons.portal.what_if.comparison import Comparison, of_replay, of_simulation
from daemons.portal.what_if.runs import Run, RunRequest, Runs, RunState, WhatIfKind
from daemons.report.html import table_html
from shared.base.errors import InvalidInput, Problem, TrimtabError
from shared.ports import plugins
from shared.runtime.logs import get_logger

URL = "/what-if"
ROLES = ("placement", "provisioning")
VALUES_MAX, VALUE_LENGTH_MAX = 50, 500
NO_SUCH = "?"  # no policy has a parameter of this name: asked for it, it names those that it has
AGO = ("24h", "7d", "30d")


def _runs(request: Request) -> Runs:
    runs = portal(request).runs
    if runs is None:
        raise HTTPException(404, "What-ifs need a history: history.url is not configured.")
    return runs


# --- asking ---------------------------------------------------------------------------------------------------------


@require(Role.PROVIDER)
async def show_all(request: Request) -> Response:
    """Show the form, and the existing what-ifs."""
    return await _list(request, request.query_params, [], 200)


async def _list(request: Request, given: Mapping[str, str], problems: list[str], status: int) -> Response:
    runs = _runs(request)
    rows = runs.all()
    policies = await portal(request).threads.do(policies_known)
    return page(
        request,
        "what_if.html",
        status,
        runs=rows,
        places={run.id: runs.place(run.id) for run in rows if run.state is RunState.QUEUED},
        is_any_open=any(run.is_open for run in rows),
        given={"from": "24h", "to": "now", "kind": WhatIfKind.SIMULATE.value} | dict(given),
        policies=policies,
        limit_s=runs.limit_s,
        ago=AGO,
        problems=problems,
    )


def policies_known() -> dict[str, list[tuple[str, str]]]:
    """Return the policies of each role with their declared parameters. Loads them."""
    return {role: [(name, _parameters(role, name)) for name in _names(role)] for role in ROLES}


def _names(role: str) -> tuple[str, ...]:
    return plugins.names(plugins.policy_group(role))


def _parameters(role: str, name: str) -> str:
    try:
        plugins.find_policy(role, name).check_params({NO_SUCH: 0})
    except InvalidInput as error:
        return next((problem.expected for problem in error.problems if problem.expected), "none")
    except Exception as error:  # noqa: BLE001 - a policy may raise anything: the form is shown without its parameters
        get_logger("portal").warning("a policy does not say its parameters", policy=name, error=repr(error))
        return "unknown"
    return "any"


@while_read_only
@require(Role.PROVIDER)
async def start(request: Request) -> Response:
    """Take in a what-if."""
    filled = await fields(request)
    runs = _runs(request)
    try:
        span = span_of(filled.fields, portal(request).controller_client.now_s(), "24h", grain_s=1.0)
        run_request = await parsed(request, run_request_of, filled.fields, span, account(request).sender)
        run = runs.start(run_request)
    except InvalidInput as error:
        return await _list(request, filled.fields, problems_of(error), 422)
    except TooBusy as error:
        return await _list(request, filled.fields, [str(error)], 409)
    await _note(request, "what-if-start", run)
    return go(f"{URL}/{run.id}", "saved")


async def _note(request: Request, what: str, run: Run) -> None:
    """Keep in the portal's log who began or ended one."""
    authentication = portal(request).authentication
    await authentication.note(request, account(request).sender, what, subject=run.id, why=run.wish.why)


def run_request_of(given: Mapping[str, str], span: Span, sender: str) -> RunRequest:
    """Return the run that a form describes; policies check their parameters. Raises `InvalidInput` with everything that
    is wrong."""
    kind = WhatIfKind.REPLAY if given.get("kind") == WhatIfKind.REPLAY.value else WhatIfKind.SIMULATE
    texts = tuple(line.strip() for line in given.get("values", "").splitlines() if line.strip())
    names = {role: given.get(role, "").strip() for role in ROLES}
    problems: list[Problem] = []
    if len(texts) > VALUES_MAX or any(len(text) > VALUE_LENGTH_MAX for text in texts):
        expected = f"at most {VALUES_MAX} lines of {VALUE_LENGTH_MAX} characters"
        problems.append(Problem("values", "are too many or too long", expected))
    else:
        problems += _wrong(names, texts)
    if problems:
        raise InvalidInput(*problems)
    why = given.get("why", "").strip()[:VALUE_LENGTH_MAX]
    return RunRequest(
        kind,
        span.from_s,
        span.to_s,
        placement=names["placement"],
        provisioning=names["provisioning"],
        values=texts,
        account=sender,
        why=why,
    )


def _wrong(names: Mapping[str, str], texts: tuple[str, ...]) -> list[Problem]:
    """Return the problems that the command would report for the same options, as far as they are known without the
    recorded ones."""
    problems: list[Problem] = []
    try:
        other = alteration(names["placement"], names["provisioning"], texts)
    except InvalidInput as error:
        return [Problem("values", each.what, each.expected) for each in error.problems]
    for role in ROLES:
        if not names[role]:
            continue
        try:
            plugins.find_policy(role, names[role]).check_params(other.section(role))
        except InvalidInput as error:
            problems += error.problems
    return problems


# --- looking --------------------------------------------------------------------------------------------------------


@require(Role.PROVIDER)
async def show(request: Request) -> Response:
    """Show one what-if: its progress and its result."""
    runs = _runs(request)
    run = _found(request, runs)
    result = await portal(request).threads.do(runs.result, run.id)
    compared, note = _compared(run, result)
    return page(
        request,
        "what_if_run.html",
        run=run,
        place=runs.place(run.id),
        limit_s=runs.limit_s,
        compared=compared,
        tables=[table_html(table) for table in compared.tables] if compared else [],
        charts=[figure(request, chart) for chart in compared.charts if not chart.is_empty] if compared else [],
        note=note,
    )


def _found(request: Request, runs: Runs) -> Run:
    run = runs.find(request.path_params["id"])
    if run is None:
        raise HTTPException(404, "This what-if does not exist, or was deleted.")
    return run


def _compared(run: Run, result: dict[str, Any] | None) -> tuple[Comparison | None, str]:
    """Return the result, and why it cannot be shown."""
    if result is None:
        return None, "The result is no longer stored." if run.state is RunState.DONE else ""
    try:
        return (of_replay if run.wish.kind is WhatIfKind.REPLAY else of_simulation)(result), ""
    except (KeyError, TypeError, ValueError, AttributeError, TrimtabError) as error:
        get_logger("portal").error("a what-if cannot be shown", run=run.id, error=repr(error))
        return None, "The result has a format that this version cannot show. Run the what-if again."


@while_read_only
@require(Role.PROVIDER)
async def cancel(request: Request) -> Response:
    """End one that waits or runs."""
    runs = _runs(request)
    run = _found(request, runs)
    if runs.cancel(run.id):
        await _note(request, "what-if-cancel", run)
    return go(f"{URL}/{request.path_params['id']}")


@while_read_only
@require(Role.PROVIDER)
async def forget(request: Request) -> Response:
    """Drop one that is over."""
    runs = _runs(request)
    run = _found(request, runs)
    if runs.forget(run.id):
        await _note(request, "what-if-delete", run)
    return go(URL)


ROUTES = [
    Route(URL, show_all, methods=["GET"]),
    Route(URL, start, methods=["POST"]),
    Route(f"{URL}/{{id}}", show, methods=["GET"]),
    Route(f"{URL}/{{id}}/cancel", cancel, methods=["POST"]),
    Route(f"{URL}/{{id}}/forget", forget, methods=["POST"]),
]
