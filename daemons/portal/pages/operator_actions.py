"""A change by hand: first what the policies think of it, then the change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.portal.client.controller_client import Refused, Unreachable
from daemons.portal.context import Form, account, act, ask, fields, page, portal, require, status_of, while_read_only
from daemons.portal.present.nodes import by_name, node_url
from daemons.portal.present.workloads import job_url
from daemons.values.text_format import memory_text
from shared.base.errors import InvalidValue
from shared.protocol.account_messages import Assess
from shared.protocol.operator_messages import DrainNode, HoldJob, MoveVm
from shared.protocol.operator_messages import Request as BusRequest

MIGRATE = "migrate"
TEXT_MAX = 300


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """A change by hand: what it is called, what it does in one sentence, its request by an id, a subject and a node,
    and the page to go to afterwards."""

    title: str
    means: str
    make: Callable[[str, str, str], BusRequest]
    url: Callable[[str], str]


def _of_vm(vm: str) -> str:
    return job_url(vm.rpartition("#")[0] or vm)


KINDS = {
    MIGRATE: OperatorAction(
        "Migrate the VM", "A live migration: the VM keeps running and keeps its allotted CPU.", MoveVm, _of_vm
    ),
    "suspend": OperatorAction(
        "Suspend the job",
        "Saves its VMs to disk until the job is resumed.",
        lambda request, job, _: HoldJob(request, job, True),
        job_url,
    ),
    "resume": OperatorAction(
        "Resume the job",
        "The job runs again when there is enough free capacity.",
        lambda request, job, _: HoldJob(request, job, False),
        job_url,
    ),
    "drain": OperatorAction(
        "Drain the node",
        "Migrates its VMs to other nodes or saves them to disk. "
        "The node stays on and out of service until it is undrained.",
        lambda request, node, _: DrainNode(request, node, True),
        node_url,
    ),
}


@require(Role.PROVIDER)
async def show(request: Request) -> Response:
    """Show the form: the action, and its target."""
    said = {name: request.query_params.get(name, "")[:TEXT_MAX] for name in ("kind", "subject", "node")}
    return await _form(request, said)


@while_read_only
@require(Role.PROVIDER)
async def assess(request: Request) -> Response:
    """Show the policies' assessment; nothing is changed."""
    said = _said(await fields(request))
    asked = Assess(portal(request).controller_client.new_id(), said["kind"], said["subject"], said["node"])
    try:
        found = await ask(request, asked)
    except Refused as error:
        return await _form(request, said, [error.detail or error.code], status_of(error))
    except Unreachable as error:
        return await _form(request, said, [f"Controller unreachable: {error.why}."], 503)
    return await _form(request, said, found=found)


@require(Role.PROVIDER)
async def do(request: Request) -> Response:
    """Make the change."""
    said = _said(await fields(request))
    kind = _kind(said)

    def asked(_: Form) -> BusRequest:
        if said["kind"] == MIGRATE and not said["node"]:
            raise InvalidValue("node", "", "the target node")
        return kind.make(portal(request).controller_client.new_id(), said["subject"], said["node"])

    async def again(problems: list[str], status: int) -> Response:
        return await _form(request, said, problems, status)

    return await act(request, asked, kind.url(said["subject"]), again=again)


def _said(form: Form) -> dict[str, str]:
    return {name: form.text(name)[:TEXT_MAX] for name in ("kind", "subject", "node")}


def _kind(said: Mapping[str, str]) -> OperatorAction:
    if said["kind"] not in KINDS or not said["subject"]:
        raise HTTPException(404)
    return KINDS[said["kind"]]


async def _form(
    request: Request,
    said: Mapping[str, str],
    problems: list[str] | None = None,
    status: int = 200,
    found: Mapping[str, Any] | None = None,
) -> Response:
    kind = _kind(said)
    targets = await _targets(request, said["subject"]) if said["kind"] == MIGRATE else []
    return page(
        request,
        "by_hand.html",
        status,
        kind=kind,
        what=dict(said),
        back=kind.url(said["subject"]),
        problems=problems or [],
        targets=targets,
        found=found,
        verdict=verdict(found) if found is not None else (),
        migrates=said["kind"] == MIGRATE,
    )


async def _targets(request: Request, vm: str) -> list[tuple[str, str]]:
    """Return the nodes to which a VM may move: others that take VMs, of the environment of its job if that is known."""
    me, live = account(request), portal(request).live
    rows = by_name((await live.view(me, "nodes")).data["nodes"])
    try:
        job = (await live.view(me, "job", vm.rpartition("#")[0] or vm)).data["job"]
    except Refused:  # it may be an instance of a web application
        here, environment = "", None
    else:
        environment = job["environment"]
        here = next((one["node"] or "" for one in job["instance_list"] if one["vm"] == vm), "")
    return [
        (row["name"], _target(row))
        for row in rows
        if row["schedulable"] and row["name"] != here and environment in (None, row["environment"])
    ]


def _target(row: Mapping[str, Any]) -> str:
    free = row["memory"]["free_mib"]
    return row["name"] if free is None else f"{row['name']} ({memory_text(free)} free)"


def verdict(found: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the policies' assessment, in sentences, each with the kind of its badge."""
    said: list[tuple[str, str]] = []
    if found["refused"]:
        said.append(
            ("alarm", f"The controller would refuse it: {found['refused']['detail'] or found['refused']['code']}")
        )
    if found["skipped"]:
        said.append(("busy", f"No prediction: {found['skipped']}"))
        return tuple(said)
    if found["undone"] is True:
        said.append(("busy", f"The policy {found['policy']} would undo it at the next decision."))
    elif found["undone"] is False:
        said.append(("good", f"The policy {found['policy']} would keep it at the next decision."))
    worse = sum(_change(row) < 0.0 for row in found["utilities"])
    better = sum(_change(row) > 0.0 for row in found["utilities"])
    said.append(("alarm" if worse else "good", f"{worse} workloads would have lower utility, {better} higher."))
    return tuple(said)


def _change(row: Mapping[str, Any]) -> float:
    now, changed = row["now"], row["changed"]
    return 0.0 if now is None or changed is None or abs(changed - now) < 0.005 else changed - now


ROUTES = [
    Route("/by-hand", show, methods=["GET"]),
    Route("/by-hand/assess", assess, methods=["POST"]),
    Route("/by-hand", do, methods=["POST"]),
]
