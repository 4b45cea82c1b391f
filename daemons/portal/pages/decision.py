"""Decisions: what was decided in each cycle and why, what was not, what it brought; approve and reject what waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.controller.views.decisions import decision_view
from daemons.portal.client.controller_client import Refused, Unreachable
from daemons.portal.client.memo import derived
from daemons.portal.context import Form, account, act, page, portal, read, require
from daemons.portal.present.plan_graph import BOX_HEIGHT, BOX_WIDTH, graph
from daemons.portal.present.reasons import words_of
from daemons.store.reading import Reading
from daemons.store.reading_rows import DecisionRow
from shared.base.errors import InvalidInput, Problem
from shared.protocol.account_messages import WHY_LENGTH_MAX, RejectPlan
from shared.protocol.operator_messages import ApprovePlan
from shared.protocol.operator_messages import Request as BusRequest

Row = Mapping[str, Any]

LIST_ROWS = 50
LISTED_S = 2.0  # the list is read again after this time
PAST_S = 30.0  # a decision that only the history has is read again after this time
ROWS_MAX = 300  # of each list of a decision that is shown
DIGITS_MAX = 18
URL = "/decision"


# --- all ------------------------------------------------------------------------------------------------------------


@require(Role.PROVIDER)
async def show_all(request: Request) -> Response:
    """Show the decisions, newest first, with their predictions and results; a waiting one comes first."""
    before_s = _number(request.query_params.get("before", ""))
    now_s = portal(request).controller_client.now_s()
    waiting, recent, missed, trouble = await _live(request)
    if portal(request).reading is not None:
        until_s = now_s + 1.0 if before_s is None else before_s
        key, moment = ("decisions", before_s), (now_s // LISTED_S,)
        rows = await derived(request).once(
            key, moment, lambda: read(request, lambda history: history.decisions(0.0, until_s, LIST_ROWS + 1))
        )
        shown = [_of_history(row, recent.get(row.number)) for row in rows]
    else:
        shown = [_of_view(row) for row in recent.values() if before_s is None or row["decided_at_s"] < before_s]
    older = shown[LIST_ROWS - 1]["at_s"] if len(shown) > LIST_ROWS else None
    return page(
        request,
        "decision_list.html",
        rows=shown[:LIST_ROWS],
        older=older,
        waiting=waiting,
        scores=missed,
        stale=trouble,
        whys=words_of,
    )


async def _live(request: Request) -> tuple[Row | None, dict[int, Row], list[Row], str]:
    """Return the waiting decision, the latest decisions by number, and those whose predictions do not hold, from the
    controller; and why nothing newer is available."""
    live, me = portal(request).live, account(request)
    try:
        plan, history = await live.views(me, "plan", "plan-history")
    except (Refused, Unreachable) as error:
        if portal(request).reading is None:
            raise
        return None, {}, [], str(error)
    waiting = plan.data if plan.data["waiting_approval"] else None
    missed = [row for row in history.data["scores"] if row["over"] or not row["trusted"]]
    return waiting, {row["number"]: row for row in history.data["decisions"]}, missed, plan.trouble


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _of_history(row: DecisionRow, live: Row | None) -> dict[str, Any]:
    return {
        "number": row.number,
        "at_s": row.at_s,
        "policy": row.policy,
        "changes": row.changes,
        "refusals": row.refusals,
        "in_service": row.nodes_wanted,
        "predicted": row.predicted_mean,
        "measured": row.measured_mean,
        "predicted_min": row.predicted_min,
        "measured_min": row.measured_min,
        "reasons": [(code, count) for what, code, count in row.reasons if what == "change"][:3],
        "state": state_of(live) if live is not None else "",
    }


def _of_view(row: Row) -> dict[str, Any]:
    utility: Row = row["utility"] or {"min": {}, "mean": {}}
    return {
        "number": row["number"],
        "at_s": row["decided_at_s"],
        "policy": row["policy"],
        "changes": row["counts"]["changes"],
        "refusals": row["counts"]["refusals"],
        "in_service": (row["provisioning"] or {}).get("in_service"),
        "predicted": utility["mean"].get("predicted"),
        "measured": utility["mean"].get("measured"),
        "predicted_min": utility["min"].get("predicted"),
        "measured_min": utility["min"].get("measured"),
        "reasons": [],
        "state": state_of(row),
    }


def state_of(row: Row) -> str:
    """Return the fate of a decision that required an operator's approval: "approved", "rejected", "" for any other."""
    if row.get("rejected"):
        return "rejected"
    return "approved" if row.get("approved_at_s") is not None and row.get("asks") else ""


# --- one ------------------------------------------------------------------------------------------------------------


@require(Role.PROVIDER)
async def show(request: Request) -> Response:
    """Show one decision."""
    return await _page(request, [], 200)


def _which(request: Request) -> int:
    """Return the number in the address."""
    text = request.path_params["number"]
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX and int(text) > 0):
        raise HTTPException(404, "This decision does not exist.")
    return int(text)


async def _page(request: Request, problems: list[str], status: int, why: str = "") -> Response:
    number = _which(request)
    data, trouble = await _found(request, number)
    decision = data["decision"]
    steps = decision["steps"]
    return page(
        request,
        "decision.html",
        status,
        url=f"{URL}/{number}",
        data=data,
        decision=decision,
        state=state_of(decision),
        refused=_by_reason(decision["refusals"]),
        graph=graph(steps),
        progress=Counter(step.get("state", "unknown") for step in steps),
        box=(BOX_WIDTH, BOX_HEIGHT),
        words=words_of,
        rows_max=ROWS_MAX,
        stale=trouble,
        problems=problems,
        why=why,
        mine=[each for each in decision["approvals"] if each["account"] == account(request).sender],
    )


async def _found(request: Request, number: int) -> tuple[dict[str, Any], str]:
    """Return the decision from the controller, else from the history; and why nothing newer is available."""
    whole, kept = portal(request), derived(request)
    trouble, gone, moment = "", ("gone", number), (portal(request).controller_client.now_s() // PAST_S,)
    nothing = {"waiting_approval": False, "approvals_needed": 0, "approvals_missing": 0}
    if kept.find(gone, moment):  # the controller keeps the newest ones alone: it need not be asked again
        return {"decision": await _past(request, number)} | nothing, ""
    try:
        return await whole.controller_client.view(account(request).sender, "plan", str(number), ROWS_MAX), ""
    except Unreachable as error:
        if whole.reading is None:
            raise
        trouble = error.why
    except Refused as error:
        if error.code != "no-such-plan" or whole.reading is None:
            raise HTTPException(404, f"Decision {number} does not exist, or its record has expired.") from error
    past = await _past(request, number)
    if not trouble:
        kept.put(gone, moment, True)
    return {"decision": past} | nothing, trouble


async def _past(request: Request, number: int) -> dict[str, Any]:
    """Return a decision from the history. Raises 404 if it has none."""
    moment = (portal(request).controller_client.now_s() // PAST_S,)

    def look(history: Reading) -> dict[str, Any] | None:
        record = history.decision(number)
        return None if record is None else decision_view(record, ROWS_MAX)

    found = await derived(request).once(("past decision", number), moment, lambda: read(request, look))
    if found is None:
        raise HTTPException(404, f"Decision {number} does not exist, or its record has expired.")
    return found


def _by_reason(refusals: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Group the refused changes by reason, the most frequent first."""
    found: dict[str, list[Row]] = {}
    for row in refusals:
        found.setdefault(row["reason"]["code"], []).append(row)
    return sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))


# --- a word about it ------------------------------------------------------------------------------------------------


@require(Role.PROVIDER)
async def approve(request: Request) -> Response:
    """Approve the plan that waits."""
    return await _say(request, lambda new, number, _: ApprovePlan(new, number))


@require(Role.PROVIDER)
async def reject(request: Request) -> Response:
    """Drop the plan that waits; why must be said."""

    def made(new: str, number: int, form: Form) -> BusRequest:
        why = form.text("why")[:WHY_LENGTH_MAX]
        if not why:
            raise InvalidInput(Problem("why", "is empty", "a reason for the rejection"))
        return RejectPlan(new, number, why)

    return await _say(request, made)


async def _say(request: Request, made: Any) -> Response:
    number, new = _which(request), portal(request).controller_client.new_id()

    async def again(problems: list[str], status: int) -> Response:
        return await _page(request, problems, status)

    return await act(request, lambda form: made(new, number, form), f"{URL}/{number}", again=again)


ROUTES = [
    Route(URL, show_all, methods=["GET"]),
    Route(f"{URL}/{{number}}", show, methods=["GET"]),
    Route(f"{URL}/{{number}}/approve", approve, methods=["POST"]),
    Route(f"{URL}/{{number}}/reject", reject, methods=["POST"]),
]
