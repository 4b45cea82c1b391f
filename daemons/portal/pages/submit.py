"""Submitting a job or a web application: with the fields of a form, or as files in the format of the `trimtab` command,
one or several at once. All problems are reported at once, in the same words as for a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.manifests import job, web_app
from daemons.portal.client.controller_client import Refused, Unreachable
from daemons.portal.context import (
    account,
    ask,
    fields,
    form,
    go,
    listed,
    page,
    parsed,
    portal,
    problems_of,
    require,
    status_of,
    with_files,
)
from daemons.portal.forms.binding import NOTHING, Wrong, given
from daemons.portal.forms.submit import KINDS, from_files, from_form, room_for
from daemons.portal.present.workloads import app_url, job_url
from shared.base.errors import InvalidInput, Problem
from shared.protocol.operator_messages import Request as BusRequest
from shared.protocol.operator_messages import SubmitJob, SubmitWeb
from shared.values.jobs import Job
from shared.values.web_app import WebApp

PASTED = "pasted"
FILE_NAME_MAX = 100
CHECK = "check"
UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one of several submissions."""

    where: str
    name: str
    url: str
    done: bool
    said: str


@dataclass(slots=True)
class Shown:
    """What the page shows beside the form."""

    values: dict[str, str]
    text: str = ""
    why: str = ""
    wrong: Wrong = NOTHING
    problems: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    understood: list[dict[str, Any]] = field(default_factory=list)
    room: list[str] = field(default_factory=list)
    status: int = 200


async def show_job(request: Request) -> Response:
    """Show the form for a job."""
    return await _page(request, "job", Shown(given(KINDS["job"].groups, None)))


@require(Role.PROVIDER, Role.OWNER)
async def show_web(request: Request) -> Response:
    """Show the form for a web application."""
    return await _page(request, "web", Shown(given(KINDS["web"].groups, None)))


@with_files
async def submit_job(request: Request) -> Response:
    """Submit jobs, or say how they are understood."""
    return await _submit(request, "job")


@with_files
@require(Role.PROVIDER, Role.OWNER)
async def submit_web(request: Request) -> Response:
    """Submit web applications, or say how they are understood."""
    return await _submit(request, "web")


async def _page(request: Request, which: str, shown: Shown) -> Response:
    environments, trouble = await _environments(request, which)
    kind = KINDS[which]
    return page(
        request,
        "submit.html",
        shown.status,
        which=which,
        kind=kind,
        shown=shown,
        environments=environments,
        no_environments=trouble,
        must_choose=not account(request).is_provider,
        folded=lambda group: (
            group.folded
            and all(shown.values[one.key] == one.default and one.key not in shown.wrong.beside for one in group.fields)
        ),
    )


async def _environments(request: Request, which: str) -> tuple[list[str], str]:
    """Return the environments that the account may submit to, or why they are unknown."""
    me = account(request)
    try:
        rows = (await portal(request).live.view(me, "environments")).data["environments"]
    except (Refused, Unreachable) as error:
        return [], f"The list of environments is unavailable: {error}"
    side = "web" if which == "web" else "batch"
    return [row["name"] for row in rows if row.get("workload", side) == side and row["state"] not in ("destroyed",)], ""


# --- what is sent ---------------------------------------------------------------------------------------------------


async def _submit(request: Request, which: str) -> Response:
    kind, filled = KINDS[which], await fields(request)
    shown = Shown(given(kind.groups, filled.fields), filled.fields.get("toml", ""), filled.text("why"))
    now_s = portal(request).controller_client.now_s()
    try:
        files = await _files(request, shown.text)
        if files:
            made, problems = await parsed(request, from_files, kind, files, now_s)
            shown.problems = listed(problems)
        else:
            one, shown.wrong = await parsed(request, from_form, kind, shown.values, now_s)
            made = [("", one)] if one is not None else []
    except InvalidInput as error:
        shown.problems, shown.status = problems_of(error), 422
        return await _page(request, which, shown)
    if shown.problems or shown.wrong.count:
        shown.status = 422
        if files and made:
            shown.problems.append(f"Nothing was submitted. The other {len(made)} have no problems.")
        return await _page(request, which, shown)
    if filled.text("do") == CHECK:
        await _explain(request, shown, made)
        return await _page(request, which, shown)
    return await _send(request, which, shown, made, alone=not files or len(made) == 1)


async def _files(request: Request, pasted: str) -> list[tuple[str, str]]:
    """Return the uploaded or pasted files, by name. Raises `InvalidInput` for a file that is not text."""
    found = [(PASTED, pasted)] if pasted.strip() else []
    for each in (await form(request)).getlist("file"):
        if not isinstance(each, UploadFile) or not each.filename:
            continue
        name, content = each.filename[:FILE_NAME_MAX], await each.read()
        try:
            found.append((name, content.decode()))
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise InvalidInput(Problem(f"{name}:{line}", "not UTF-8", "text in UTF-8")) from error
    return found


async def _explain(request: Request, shown: Shown, made: Sequence[tuple[str, Job | WebApp]]) -> None:
    """Explain how the submissions are understood, and where they would fit now."""
    me, nodes = account(request), []
    if me.is_provider:
        nodes = (await portal(request).live.view(me, "nodes")).data["nodes"]
    for _, one in made:
        if isinstance(one, WebApp):
            shown.understood.append(web_app.understood(one))
            continue
        shown.understood.append(job.understood(one))
        if me.is_provider and not one.environment:
            fits, of = room_for(one, nodes)
            vms = "its VM" if one.instances == 1 else "one of its VMs"
            shown.room.append(f"{one.name}: {fits} of {of} nodes have the labels, vCPUs and free memory for {vms} now.")


async def _send(
    request: Request, which: str, shown: Shown, made: Sequence[tuple[str, Job | WebApp]], alone: bool
) -> Response:
    for where, one in made:
        if shown.status == UNAVAILABLE:  # each of the others would wait as long
            said = "Not sent: the controller did not respond to the previous one."
            shown.answers.append(Answer(where, one.name, "", False, said))
            continue
        shown.answers.append(await _send_one(request, where, one, shown))
    if alone and shown.answers[0].done:
        return go(shown.answers[0].url, "sent")
    if alone:
        shown.problems, shown.answers = [shown.answers[0].said], []
    return await _page(request, which, shown)


async def _send_one(request: Request, where: str, one: Job | WebApp, shown: Shown) -> Answer:
    identity = portal(request).controller_client.new_id()
    asked: BusRequest = SubmitJob(identity, one) if isinstance(one, Job) else SubmitWeb(identity, one)
    url = job_url(one.name) if isinstance(one, Job) else app_url(one.name)
    try:
        await ask(request, asked, shown.why)
    except Refused as error:
        shown.status = status_of(error)
        return Answer(where, one.name, url, False, error.detail or error.code)
    except Unreachable as error:
        shown.status = UNAVAILABLE
        said = f"Controller unreachable: {error.why}. It may still be accepted. Check before you submit it again."
        return Answer(where, one.name, url, False, said)
    return Answer(where, one.name, url, True, "submitted")


ROUTES = [
    Route("/workloads/submit", show_job, methods=["GET"]),
    Route("/workloads/submit", submit_job, methods=["POST"]),
    Route("/workloads/submit-web", show_web, methods=["GET"]),
    Route("/workloads/submit-web", submit_web, methods=["POST"]),
]
