"""Nodes: the list, a node's page with what it did over the last hours, and what an operator may do with one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.portal.client.memo import derived
from daemons.portal.context import Form, account, act, page, portal, read, require
from daemons.portal.pages.reports import busy
from daemons.portal.present.charts import LOOKS
from daemons.portal.present.node_use import HOURS, Use, drawn, picture_of, use_of
from daemons.portal.present.nodes import STATES, by_name, cpu_frac, memory_frac, node_url, state_of, states
from daemons.portal.present.pagination import Column, Listing, has_text, name_key, part, wanted
from daemons.portal.process_pool import TooBusy
from daemons.report.charts import data_table
from daemons.report.draw import can_draw
from daemons.store.reading import Reading
from shared.base.errors import StoreUnavailable
from shared.protocol.operator_messages import AddNode, ConfirmOff, DrainNode, RemoveNode, RepairNode
from shared.protocol.operator_messages import Request as BusRequest
from shared.values.scalars import check_name

ORDER = {state: place for place, state in enumerate(reversed(STATES))}
COLUMNS = (
    Column("name", "Name", lambda row: name_key(row["name"])),
    Column("state", "State", lambda row: ORDER.get(state_of(row), 0)),
    Column("environment", "Environment", lambda row: row["environment"] or None),
    Column("cpu", "CPU used", cpu_frac),
    Column("memory", "Memory allocated", memory_frac),
    Column("iowait", "I/O wait", lambda row: row["iowait_frac"]),
    Column("vms", "Managed VMs", lambda row: row["vms"], number=True),
    Column("others", "Unmanaged VMs", lambda row: row["unmanaged_vms"], number=True),
    Column("actions", "In progress", lambda row: row["actions"], number=True),
    Column("report", "Report", lambda row: row["report_age_s"]),
)
FILTERS = {"q": "", "state": "", "environment": ""}
USE_S = 30.0  # the stored use of a node is read again after this time


# --- the list -------------------------------------------------------------------------------------------------------


@require(Role.PROVIDER)
async def show_all(request: Request) -> Response:
    """Show the nodes, filtered, sorted and one page at a time."""
    return await _list(request)


async def _list(request: Request, problems: list[str] | None = None, status: int = 200) -> Response:
    seen = await portal(request).live.view(account(request), "nodes")
    kept, data = derived(request), seen.data
    rows = kept.get("nodes-by-name", (data,), lambda: by_name(data["nodes"]))
    listing = wanted(request.query_params, FILTERS, COLUMNS, "name")
    by_name_already = listing.sort == "name" and not listing.falling
    found = part([row for row in rows if _fits(row, listing)], listing, COLUMNS, ordered=by_name_already)
    return page(
        request,
        "nodes.html",
        status,
        part=found,
        counts=kept.get("states", (data,), lambda: states(data["nodes"])),
        words=STATES,
        environments=sorted({row["environment"] for row in rows} - {""}),
        seen=seen,
        problems=problems or [],
        state_of=state_of,
        cpu_frac=cpu_frac,
        memory_frac=memory_frac,
        node_url=node_url,
    )


def _fits(row: Mapping[str, Any], listing: Listing) -> bool:
    said = listing.filters
    good = not said["state"] or state_of(row) == said["state"]
    good = good and (not said["environment"] or row["environment"] == said["environment"])
    return good and has_text(said["q"], row["name"], row["environment"], *(row["labels"] or ()))


@require(Role.PROVIDER)
async def add(request: Request) -> Response:
    """Let a node take part."""

    def asked(form: Form) -> BusRequest:
        name = form.text("name")
        check_name("name", name)
        return AddNode(portal(request).controller_client.new_id(), name)

    async def again(problems: list[str], status: int) -> Response:
        return await _list(request, problems, status)

    return await act(request, asked, "/nodes", again=again)


# --- one node -------------------------------------------------------------------------------------------------------


@require(Role.PROVIDER)
async def show(request: Request) -> Response:
    """Show all that is known of a node."""
    return await _one(request)


async def _one(request: Request, problems: list[str] | None = None, status: int = 200) -> Response:
    name = request.path_params["node"]
    seen = await portal(request).live.view(account(request), "node", name)
    hours = hours_of(request)
    follows = "hx-request" in request.headers  # then only what is live is taken from the page
    use, why = (None, "") if follows else await _use(request, name, hours)
    return page(
        request,
        "node.html",
        status,
        node=seen.data["node"],
        seen=seen,
        state=state_of(seen.data["node"]),
        cpu=cpu_frac(seen.data["node"]),
        memory=memory_frac(seen.data["node"]),
        words=STATES,
        problems=problems or [],
        url=node_url(name),
        hours=hours,
        all_hours=HOURS,
        use=use,
        tables=[data_table(chart) for chart in use.charts] if use is not None else [],
        no_use=why,
        use_picture=picture_of(node_url(name), name, hours) if can_draw() else "",
    )


def hours_of(request: Request) -> int:
    """Return how many hours the charts go back, from the query of the address."""
    said = request.query_params.get("hours", "")
    return next((hours for hours in HOURS if str(hours) == said), HOURS[0])


async def _use(request: Request, name: str, hours: int) -> tuple[Use | None, str]:
    """Return the use of a node from the history, or why it cannot be shown."""
    whole = portal(request)
    if whole.reading is None:
        return None, "No chart: no history is configured (history.url)."
    now_s = whole.controller_client.now_s()

    def look(history: Reading) -> Use:
        return use_of(history, name, now_s - 3600.0 * hours, now_s)

    try:
        key = ("use of node", name, hours)
        return await derived(request).once(key, (now_s // USE_S,), lambda: read(request, look)), ""
    except StoreUnavailable as error:
        return None, f"The history is unavailable: {error}"


@require(Role.PROVIDER)
async def picture(request: Request) -> Response:
    """Draw the use of a node, in one of its looks."""
    name, look = request.path_params["node"], request.path_params["look"]
    if look not in LOOKS or not can_draw():
        raise HTTPException(404)
    use, _ = await _use(request, name, hours_of(request))
    if use is None:
        raise HTTPException(404)
    key = ("drawn", name, look, hours_of(request))
    kept = derived(request)
    body = kept.find(key, use.mark)
    if body is None:
        try:  # where drawings are made: here it would hold up every other answer
            body = kept.put(key, use.mark, await portal(request).pictures.process_pool.do(drawn, use, look))
        except TooBusy as error:
            return busy(error)
    return Response(body, media_type="image/svg+xml")


# --- what may be done -----------------------------------------------------------------------------------------------


def _deed(make: Callable[[str, str], BusRequest], typed: bool = False, done_url: str = "") -> Any:
    """Return a handler that sends a request about a node; `typed`: only when the node's name was typed as
    confirmation."""

    @require(Role.PROVIDER)
    async def run(request: Request) -> Response:
        name = request.path_params["node"]

        def asked(form: Form) -> BusRequest:
            if typed:
                form.need_typed(name, "node")
            return make(portal(request).controller_client.new_id(), name)

        async def again(problems: list[str], status: int) -> Response:
            return await _one(request, problems, status)

        return await act(request, asked, done_url or node_url(name), again=again)

    return run


drain = _deed(lambda request, node: DrainNode(request, node, True))
undrain = _deed(lambda request, node: DrainNode(request, node, False))
repair = _deed(RepairNode)
confirm_off = _deed(ConfirmOff, typed=True)
remove = _deed(RemoveNode, typed=True, done_url="/nodes")

ROUTES = [
    Route("/nodes", show_all, methods=["GET"]),
    Route("/nodes", add, methods=["POST"]),
    Route("/nodes/{node}", show, methods=["GET"]),
    Route("/nodes/{node}/use.{look}.svg", picture, methods=["GET"]),
    Route("/nodes/{node}/drain", drain, methods=["POST"]),
    Route("/nodes/{node}/undrain", undrain, methods=["POST"]),
    Route("/nodes/{node}/repair", repair, methods=["POST"]),
    Route("/nodes/{node}/confirm-off", confirm_off, methods=["POST"]),
    Route("/nodes/{node}/remove", remove, methods=["POST"]),
]
