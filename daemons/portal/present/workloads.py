"""The pages' descriptions of workloads: problems of a job, why it waits, which have the lowest utility. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from daemons.portal.present.formatting import moment, span
from shared.policy_api.decision import ReasonCode

Row = Mapping[str, Any]

FORGOTTEN = "forgotten"  # a released job
OVER = ("completed", "cancelled", FORGOTTEN)
WORST = 20


@dataclass(frozen=True, slots=True)
class Workload:
    """A job or web application as the first page lists it. utility: 1 best, 0 exactly on goal; end_s: when it is
    predicted to be complete; each None where that is not known. trouble: what is wrong with it, in words."""

    kind: str
    name: str
    phase: str
    utility: float | None
    goal_s: float | None
    end_s: float | None
    trouble: str

    @property
    def url(self) -> str:
        """Its page."""
        return job_url(self.name) if self.kind == "job" else app_url(self.name)

    @property
    def late_s(self) -> float | None:
        """Seconds by which its end is predicted after its goal, negative before it."""
        return None if self.goal_s is None or self.end_s is None else self.end_s - self.goal_s


def phase_text(phase: str) -> str:
    """Return the text for a job's phase."""
    return "released" if phase == FORGOTTEN else phase


def job_url(name: str) -> str:
    """Return the page of a job."""
    return f"/workloads/jobs/{quote(name, safe='')}"


def app_url(name: str) -> str:
    """Return the page of a web application."""
    return f"/workloads/web/{quote(name, safe='')}"


def gain_of(plan: Row | None, name: str) -> Row | None:
    """Return the last decision's prediction for a workload, None if there is none."""
    decision = (plan or {}).get("decision") or {}
    return next((gain for gain in decision.get("gains", ()) if gain["workload"] == name), None)


def end_s(row: Row) -> float | None:
    """Return when a job is predicted to end; if it is over, when it ended. None: unknown."""
    found: float | None = row["predicted_end_at_s"] if row["finished_at_s"] is None else row["finished_at_s"]
    return found


def end_words(row: Row) -> str:
    """Within what eight of ten jobs end that have used more than they declared; "" for others."""
    early_s, late_s = row.get("predicted_end_early_at_s"), row.get("predicted_end_late_at_s")
    if row["finished_at_s"] is not None or early_s is None or late_s is None:
        return ""
    return f"beyond its declared work: 80 % of such jobs end between {moment(early_s)} and {moment(late_s)}"


def job_troubles(row: Row) -> list[str]:
    """Return the problems of a job, in words."""
    said = []
    if row["phase"] == "running" and row["waits_for"] and row["waits_for"]["code"] == ReasonCode.STARVED:
        said.append(str(row["waits_for"]["words"]))
    if row["stalled"]:
        said.append("no progress")
    if row["blocked"]:
        said.append("insufficient capacity for its planned placement")
    if row["reconciliation_paused"]:
        said.append(reconciliation_paused_words(row["reconciliation_paused"]))
    if row["failures"]:
        said.append(f"{row['failures']} failed starts in a row")
    return said


def reconciliation_paused_words(hold: Row) -> str:
    """Describe an external change to a VM, and how long reconciliation of its workload is paused."""
    until = f" until {moment(hold['until_s'])}" if hold["until_s"] is not None else ""
    did = str(hold["what"]).removesuffix("-externally").replace("-", " ")
    return f"external change of VM {hold['vm']} ({did}); reconciliation is paused{until}: {hold['detail']}"


def waits(row: Row) -> list[str]:
    """Return why a job does not run, each reason in words; none for one that runs or is over."""
    if row["phase"] not in ("waiting", "suspended"):
        return []
    said = ["Suspended by an operator until it is resumed."] if row["held"] else []
    if row["waits_for"]:
        said.append(str(row["waits_for"]["text"]))
    if row["back_off_until_s"] is not None:
        said.append(f"Not before {moment(row['back_off_until_s'])}.")
    return said or ["Waiting for the next decision."]


def goal_words(goal_s: float | None, end: float | None) -> str:
    """Compare a goal with the predicted end, in words."""
    if goal_s is None:
        return "best effort: no goal"
    if end is None:
        return "completion time unknown"
    late_s = end - goal_s
    return f"{span(late_s)} after its goal" if late_s > 0.0 else f"{span(-late_s)} before its goal"


def worst(jobs: Iterable[Row], apps: Iterable[Row], at_s: float, count: int = WORST) -> list[Workload]:
    """Return the workloads with the lowest utility at `at_s`; at equal utility, those in trouble come first."""
    found = [_job(row, at_s) for row in jobs if row["phase"] not in OVER]
    found += [_app(row) for row in apps if not row["removed"]]
    known = [one for one in found if one.utility is not None or one.trouble]
    known.sort(key=lambda one: (0.0 if one.utility is None else one.utility, not one.trouble, one.name))
    return known[:count]


def _job(row: Row, at_s: float) -> Workload:
    said = job_troubles(row)
    if row["utility"] is None and row["goal_at_s"] is not None and row["goal_at_s"] < at_s:
        said.append("goal time has passed")
    return Workload("job", row["name"], row["phase"], row["utility"], row["goal_at_s"], end_s(row), "; ".join(said))


def _app(row: Row) -> Workload:
    few = row["running"] < row["min_instances"]
    trouble = f"{row['running']} instances running, minimum {row['min_instances']}" if few else ""
    phase = "running" if row["running"] else "waiting"
    return Workload("web", row["name"], phase, row["utility"], None, None, trouble)
