"""VMs, ours and not ours: the list, and what may be done with a single one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.portal.client.controller_client import Refused
from daemons.portal.context import Form, account, act, fields, page, portal, require
from daemons.portal.present.nodes import node_url
from daemons.portal.present.pagination import Column, Listing, has_text, name_key, part, wanted
from daemons.portal.present.workloads import app_url, job_url
from shared.protocol.operator_messages import AdoptVm, ConfirmGone, ReconcileVm
from shared.protocol.operator_messages import Request as BusRequest
from shared.values.scalars import check_name

COLUMNS = (
    Column("vm", "VM", lambda row: name_key(row["vm"])),
    Column("node", "Node", lambda row: name_key(row["node"])),
    Column("state", "State", lambda row: row["state"]),
    Column("whose", "Workload", lambda row: (not row["managed"], row["app"] or row["job"])),
    Column("memory", "Memory", lambda row: row["memory_mib"], number=True),
    Column("cpu", "CPU allotted", lambda row: row["cpu_mhz"], number=True),
    Column("used", "CPU used", lambda row: row["used_mhz"], number=True),
    Column("report", "Report", lambda row: row["report_age_s"]),
)
WHOSE = (("", "any"), ("ours", "managed"), ("others", "unmanaged"), ("touched", "changed externally"))
FILTERS = {"q": "", "node": "", "whose": ""}
TEXT_MAX = 300


@require(Role.PROVIDER)
async def show_all(request: Request) -> Response:
    """Show every VM and saved image, as the nodes last reported them."""
    seen = await portal(request).live.view(account(request), "vms")
    listing = wanted(request.query_params, FILTERS, COLUMNS)
    found = part([row for row in seen.data["vms"] if _fits(row, listing)], listing, COLUMNS)
    return page(
        request,
        "vms.html",
        part=found,
        seen=seen,
        whose=WHOSE,
        nodes=sorted({row["node"] for row in seen.data["vms"]}, key=name_key),
        listed=len(seen.data["vms"]),
        total=seen.data["total"],
        vm_url=vm_url,
        node_url=node_url,
        owner_url=_owner_url,
    )


def _fits(row: dict[str, Any], listing: Listing) -> bool:
    said = listing.filters
    good = said["node"] in ("", row["node"])
    if said["whose"] == "touched":
        good = good and row["reconciliation_paused"] is not None
    elif said["whose"]:
        good = good and row["managed"] == (said["whose"] == "ours")
    return good and has_text(said["q"], row["vm"], row["node"], row["job"], row["app"])


def vm_url(vm: str, node: str = "") -> str:
    """Return the page of a VM; `node` selects one of several with its name."""
    return "/vms/one?" + urlencode({"vm": vm} | ({"node": node} if node else {}))


def _owner_url(row: dict[str, Any]) -> str:
    if row["app"]:
        return app_url(row["app"])
    return job_url(row["job"]) if row["job"] else ""


# --- one VM ---------------------------------------------------------------------------------------------------------


@require(Role.PROVIDER)
async def show(request: Request) -> Response:
    """Show all that is known of a VM, and the possible actions."""
    said = request.query_params
    return await _one(request, said.get("vm", "")[:TEXT_MAX], said.get("node", "")[:TEXT_MAX])


async def _one(
    request: Request, vm: str, node: str, problems: list[str] | None = None, status: int = 200, given: str = ""
) -> Response:
    me, live = account(request), portal(request).live
    seen = await live.view(me, "vms", node)
    rows = [row for row in seen.data["vms"] if row["vm"] == vm and node in ("", row["node"])]
    known = await _known(request, vm)
    job = rows[0]["job"] if rows and rows[0]["managed"] else vm.rpartition("#")[0]
    instance = await _instance(request, job, vm) if job else None
    if not rows and instance is None:
        raise HTTPException(404, "No node reports such a VM.")
    return page(
        request,
        "vm.html",
        status,
        vm=vm,
        rows=rows,
        seen=seen,
        instance=instance,
        migration=known.get("migration"),
        failover=known.get("failover"),
        job=job,
        problems=problems or [],
        given=given,
        url=vm_url(vm, node),
        node_url=node_url,
        owner_url=_owner_url,
        job_url=job_url,
    )


async def _instance(request: Request, job: str, vm: str) -> dict[str, Any] | None:
    """Return the controller's desired and known state of a managed VM; None when it belongs to no known job."""
    try:
        seen = await portal(request).live.view(account(request), "job", job)
    except Refused:
        return None
    found: list[dict[str, Any]] = [one for one in seen.data["job"]["instance_list"] if one["vm"] == vm]
    return found[0] if found else None


async def _known(request: Request, vm: str) -> Mapping[str, Any]:
    """Return where a managed VM can be migrated to, and whether it restarts elsewhere; empty for a VM that is gone."""
    try:
        seen = await portal(request).live.view(account(request), "vm", vm)
    except Refused:
        return {}
    return seen.data


def _deed(make: Callable[[str, str, str, str], BusRequest], typed: bool = False) -> Callable[[Request], Any]:
    """Return a handler that sends a request about a VM, from request id, VM, node and the given name of the job."""

    @require(Role.PROVIDER)
    async def run(request: Request) -> Response:
        form = await fields(request)
        vm, node = form.text("vm")[:TEXT_MAX], form.text("node")[:TEXT_MAX]

        def asked(form: Form) -> BusRequest:
            if typed:
                form.need_typed(vm, "VM")
            return make(portal(request).controller_client.new_id(), vm, node, form.text("job")[:TEXT_MAX])

        async def again(problems: list[str], status: int) -> Response:
            return await _one(request, vm, node, problems, status, form.text("job")[:TEXT_MAX])

        return await act(request, asked, "/vms", again=again)

    return run


def _adopts(request: str, vm: str, node: str, job: str) -> BusRequest:
    check_name("job", job)
    return AdoptVm(request, node, vm, job=job)


adopt = _deed(_adopts)
reconcile_vm = _deed(lambda request, vm, _node, _job: ReconcileVm(request, vm))
confirm_gone = _deed(lambda request, vm, _node, _job: ConfirmGone(request, vm), typed=True)

ROUTES = [
    Route("/vms", show_all, methods=["GET"]),
    Route("/vms/one", show, methods=["GET"]),
    Route("/vms/adopt", adopt, methods=["POST"]),
    Route("/vms/reconcile", reconcile_vm, methods=["POST"]),
    Route("/vms/confirm-gone", confirm_gone, methods=["POST"]),
]
