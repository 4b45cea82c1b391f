"""Where a new VM would go, and which VMs would have to move for it. A question: nothing is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.portal.client.controller_client import Refused, Unreachable
from daemons.portal.context import (
    Form,
    ask,
    fields,
    page,
    portal,
    problems_of,
    require,
    status_of,
    while_read_only,
)
from daemons.values.memory_size import memory_mib
from shared.base.errors import InvalidInput, InvalidValue
from shared.protocol.operator_messages import CheckVmFit
from shared.values.new_vm import COPIES_MAX, VCPUS_MAX, NewVm

FIELDS = ("vcpus", "memory", "cpu_mhz", "count", "labels")
EMPTY = {"vcpus": "2", "memory": "4GiB", "cpu_mhz": "", "count": "1", "labels": ""}
TEXT_MAX = 500


@require(Role.PROVIDER)
async def show(request: Request) -> Response:
    """Show the form."""
    return _page(request, EMPTY)


@while_read_only
@require(Role.PROVIDER)
async def check(request: Request) -> Response:
    """Show the answer below the form."""
    form = await fields(request)
    said = {name: form.text(name)[:TEXT_MAX] for name in FIELDS}
    try:
        found = dict(await ask(request, _asked(portal(request).controller_client.new_id(), Form(said))))
    except (InvalidInput, InvalidValue) as error:
        return _page(request, said, problems_of(error), 422)
    except Refused as error:
        return _page(request, said, [error.detail or error.code], status_of(error))
    except Unreachable as error:
        return _page(request, said, [f"Controller unreachable: {error.why}."], 503)
    return _page(request, said, found=found)


def _asked(request_id: str, form: Form) -> CheckVmFit:
    labels = tuple(dict.fromkeys(form.text("labels").replace(",", " ").split()))
    vcpus = form.whole("vcpus")
    if vcpus is None:
        raise InvalidValue("vcpus", "", f"a whole number from 1 to {VCPUS_MAX}")
    vm = NewVm(
        vcpus,
        memory_mib("memory", form.text("memory")),
        form.number("cpu_mhz", 0.0) or 0.0,
        labels,
    )
    count = form.whole("count", 1)
    return CheckVmFit(request_id, vm, 1 if count is None else count)


def _page(
    request: Request,
    said: Mapping[str, str],
    problems: list[str] | None = None,
    status: int = 200,
    found: Mapping[str, Any] | None = None,
) -> Response:
    placements = found["placements"] if found is not None else []
    return page(
        request,
        "vm_fit.html",
        status,
        what=dict(said),
        problems=problems or [],
        found=found,
        count_max=COPIES_MAX,
        nodes=list(Counter(each["node"] for each in placements).items()),
        moves=[move for each in placements for move in each["moves"]],
        cut=any(each["limited"] for each in placements),
    )


ROUTES = [Route("/fit", show, methods=["GET"]), Route("/fit", check, methods=["POST"])]
