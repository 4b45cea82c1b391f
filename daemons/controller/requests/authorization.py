"""Who may ask what of the controller, and what each sees (phoenixcloud.txt section 4): the resource provider, owners of
environments (service providers), and their users. Pure; who sends is the broker's word.

What somebody may not see looks as if it did not exist.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

from daemons.access.identity import Role, Who
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.web_app import WebEntry
from daemons.values.replies import unknown
from shared.protocol.operator_messages import (
    QUERIES,
    ActivateEnvironment,
    CancelJob,
    CheckReservation,
    CheckRules,
    ConsentEnvironment,
    CreateEnvironment,
    DeactivateEnvironment,
    DestroyEnvironment,
    HoldJob,
    Query,
    RemoveWeb,
    Request,
    ReserveEnvironment,
    ResizeEnvironment,
    SetJob,
    SetWeb,
    SubmitJob,
    SubmitWeb,
)
from shared.values.jobs import Job
from shared.values.web_app import WebApp

Refused = tuple[str, str]
ALLOWED: Refused = ("", "")
ON_ENVIRONMENTS = (
    ActivateEnvironment,
    DeactivateEnvironment,
    DestroyEnvironment,
    ResizeEnvironment,
    ConsentEnvironment,
    ReserveEnvironment,
)
REQUESTS: dict[Role, tuple[type[Any], ...]] = {
    Role.OWNER: (
        CreateEnvironment,
        CheckReservation,
        CheckRules,
        *ON_ENVIRONMENTS,
        SubmitJob,
        CancelJob,
        HoldJob,
        SetJob,
        SubmitWeb,
        SetWeb,
        RemoveWeb,
    ),
    Role.USER: (SubmitJob, CancelJob),
    Role.PORTAL: (),
}
VIEWS: dict[Role, tuple[str, ...]] = {
    Role.OWNER: ("environments", "environment", "assurance", "jobs", "job", "web-apps", "web-app"),
    Role.USER: ("environments", "jobs", "job"),
    Role.PORTAL: QUERIES,
}
USER_COLUMNS = ("name", "state")  # what a user sees of an environment


def owns(asker: Who, environment: EnvironmentEntry | None) -> bool:
    """Return whether the requester owns the environment."""
    return asker.role is Role.OWNER and environment is not None and environment.agreement.owner == asker.name


def sees_environment(asker: Who, environment: EnvironmentEntry) -> bool:
    """Return whether the requester owns the environment or may submit to it."""
    users = environment.agreement.users if asker.role is Role.USER else ()
    return asker.sees_all or owns(asker, environment) or asker.name in users


def sees_job(asker: Who, entry: JobEntry, cluster: Cluster) -> bool:
    """Return whether the requester may see a job: users see their own, owners those of their environments, without
    instances of web applications. Jobs of an earlier environment of the same name belong to another owner."""
    if asker.sees_all:
        return True
    if entry.job.app:
        return False
    if asker.role is Role.USER:
        return entry.user == asker.sender
    environment = cluster.environments.get(entry.job.environment)
    return environment is not None and owns(asker, environment) and entry.order > environment.order


def sees_app(asker: Who, web: WebEntry, cluster: Cluster) -> bool:
    """Return whether the requester may see a web application: owners see those of their environments."""
    return asker.sees_all or owns(asker, cluster.environments.get(web.app.environment))


# --- requests -------------------------------------------------------------------------------------------------------


def refusal(asker: Who, request: Request, cluster: Cluster) -> Refused:
    """Return why the requester may not ask for this, code and text; ("", "") when it may."""
    if asker.role is Role.PROVIDER:
        return ALLOWED
    if isinstance(request, Query):
        views = VIEWS[asker.role]
        return ALLOWED if request.what in views else _not_allowed(asker, f"the view {request.what!r}", views)
    kinds = REQUESTS[asker.role]
    if not isinstance(request, kinds):
        return _not_allowed(asker, request.KIND, ("query", *(kind.KIND for kind in kinds)))
    match request:
        case CreateEnvironment() | CheckReservation():
            return _creates(asker, request.agreement.owner)
        case CancelJob() | HoldJob() | SetJob():
            return _of(asker, request.job, cluster)
        case CheckRules():
            names = (name for shared in request.rules for name in shared.workloads)
            return next((refused for name in names if (refused := _of(asker, name, cluster)) != ALLOWED), ALLOWED)
        case SubmitJob():
            return _submits(asker, request.job, cluster)
        case SubmitWeb():
            return _serves(asker, request.app, cluster)
        case SetWeb() | RemoveWeb():
            web = cluster.web.get(request.app)
            if web is not None and sees_app(asker, web, cluster):
                return ALLOWED
            return "unknown-web-app", unknown("web application", request.app, _apps(asker, cluster))
        case _:
            assert isinstance(request, ON_ENVIRONMENTS)
            return _environment(asker, request.environment, cluster)


def _not_allowed(asker: Who, what: str, instead: Iterable[str]) -> Refused:
    return "not-allowed", f"{asker.sender} may not ask for {what}, only for {', '.join(instead)}"


def _creates(asker: Who, owner: str) -> Refused:
    if owner == asker.name:
        return ALLOWED
    return "not-allowed", f"owner is {owner!r}, but {asker.sender} may only create environments of owner {asker.name!r}"


def _environment(asker: Who, name: str, cluster: Cluster) -> Refused:
    environment = cluster.environments.get(name)
    if environment is not None and sees_environment(asker, environment):
        return ALLOWED
    return "unknown-environment", unknown("environment", name, named(asker, cluster))


def _into(asker: Who, name: str, cluster: Cluster) -> Refused:
    if not name:
        return "not-allowed", f"{asker.sender} may only submit to environments: name one"
    return _environment(asker, name, cluster)


def _of(asker: Who, name: str, cluster: Cluster) -> Refused:
    entry = cluster.job(name)
    if entry is not None and sees_job(asker, entry, cluster):
        return ALLOWED
    known = [key for key, each in cluster.jobs.items() if sees_job(asker, each, cluster)]
    return "unknown-job", unknown("job", name, known)


def _submits(asker: Who, job: Job, cluster: Cluster) -> Refused:
    refused = _into(asker, job.environment, cluster)
    for name in job.depends_on:
        if refused[0]:
            break
        code, why = _of(asker, name, cluster)
        refused = (code, f"depends_on: {why}; submit that one first" if code else "")
    return refused


def _serves(asker: Who, app: WebApp, cluster: Cluster) -> Refused:
    there = cluster.web.get(app.name)
    if there is not None and not sees_app(asker, there, cluster):  # what is submitted takes the place of what is there
        return "duplicate-name", f"{app.name!r} is or was a web application; choose another name"
    return _into(asker, app.environment, cluster)


def _apps(asker: Who, cluster: Cluster) -> list[str]:
    return [name for name, each in cluster.web.items() if sees_app(asker, each, cluster)]


def named(asker: Who, cluster: Cluster) -> tuple[str, ...]:
    """Return the environments whose names the requester may learn."""
    return tuple(name for name, each in cluster.environments.items() if sees_environment(asker, each))


# --- views ----------------------------------------------------------------------------------------------------------


def seen(asker: Who, cluster: Cluster, what: str) -> Cluster:
    """Return the cluster as the requester may see it in the view `what`: without the jobs, web applications and
    environments of others. Jobs are included only in views of jobs, since there may be many; it then takes O(jobs)."""
    if asker.sees_all:
        return cluster
    part = copy(cluster)
    jobs = cluster.jobs if what in ("jobs", "job") else {}
    part.jobs = {name: each for name, each in jobs.items() if sees_job(asker, each, cluster)}
    part.active = {name: each for name, each in cluster.active.items() if name in part.jobs}
    part.web = {name: each for name, each in cluster.web.items() if sees_app(asker, each, cluster)}
    part.environments = {name: each for name, each in cluster.environments.items() if sees_environment(asker, each)}
    return part


def shown(asker: Who, what: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return a view as the requester may see it. Of the environments that it may use, a user gets names and states. Of
    nodes that come from or go to others, an owner does not learn the other side. An owner does not learn the total
    needs of all promises either."""
    if asker.role is Role.USER and what == "environments":
        rows = [{key: row[key] for key in USER_COLUMNS} for row in data["environments"]]
        return {"total": data["total"], "environments": rows}
    if asker.role is Role.OWNER and what == "environment":
        row = data["environment"]
        known = {"", row["name"], row["partner"]}
        return {"environment": row | {"nodes": [_node(node, known) for node in row["nodes"]]}}
    if asker.role is Role.OWNER and what == "assurance":
        return data | {"forecast": []}  # what others have reserved is not its affair
    return data


def _node(node: dict[str, Any], known: set[str]) -> dict[str, Any]:
    """Return a node in the view of an environment, without other environments that have it or to which it is
    assigned."""
    others = {key: "" for key in ("given", "environment") if node[key] not in known}
    return node | others | {"detail": ""} if others else node
