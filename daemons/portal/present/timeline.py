"""What happened to a job, from its submission to now or to its end, as one list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from daemons.portal.present.workloads import phase_text
from daemons.store.history import ActionEntry
from daemons.store.reading import Reading
from daemons.values import event_codes

# The events about jobs: a node may have a job's name, and only the provider sees events about nodes.
EVENTS = (
    *(code for code in event_codes.EVENTS if code.startswith("job-")),
    "adopted-vm-off",
    "adopted-vm-on",
    "adoption-failed",
    "migration-unfit",
    "work-lost",
)
EVENTS_MAX = 200
ACTIONS_MAX = 50
VMS_MAX = 10


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """Something that happened. kind: `life` (as the job's row says), `event` or `action`; good: False where it failed;
    span_s: how long it took (None: it is a moment, or is not over)."""

    at_s: float
    kind: str
    text: str
    detail: str = ""
    good: bool = True
    span_s: float | None = None


def timeline_of(reading: Reading, row: Mapping[str, Any], now_s: float, in_detail: bool) -> list[TimelineEntry]:
    """Return the timeline of a job by its row in the view `job`, oldest first: its life, the events about it, and the
    actions on the first of its VMs. Raises `StoreUnavailable`. Details of events, and events that may concern something
    else of the same name, are left out unless `in_detail`."""
    from_s, to_s = row["accepted_at_s"], row["finished_at_s"]
    end_s = now_s + 1.0 if to_s is None else to_s + 60.0  # what ends it is stored a moment later
    found = [TimelineEntry(row["accepted_at_s"], "life", "accepted")]
    codes = () if in_detail else EVENTS
    for event in reading.events(from_s, end_s, codes, row["name"], EVENTS_MAX):
        detail = event.detail if in_detail else ""
        found.append(
            TimelineEntry(event.at_s, "event", event.what.replace("-", " "), detail, good=not _is_bad(event.what))
        )
    for instance in row["instance_list"][:VMS_MAX]:
        for action in reading.actions(from_s, end_s, vm=instance["vm"], limit=ACTIONS_MAX):
            found.append(_action(action, in_detail))
    if to_s is not None:
        found.append(TimelineEntry(to_s, "life", phase_text(row["phase"])))
    return sorted(found, key=lambda one: one.at_s)


def _is_bad(what: str) -> bool:
    return what.endswith(("-failed", "-lost", "-crashed", "-stalled", "-requeued"))


def _action(action: ActionEntry, in_detail: bool) -> TimelineEntry:
    where = f" on {action.node}" + (f" to {action.to_node}" if action.to_node else "")
    outcome = action.outcome or "in progress"
    span_s = None if action.sent_s is None or action.done_s is None else action.done_s - action.sent_s
    text = f"{action.kind} {action.vm}{where}: {outcome}"
    bad = action.outcome not in (None, "ok")
    return TimelineEntry(action.at_s, "action", text, (action.detail or "") if in_detail else "", not bad, span_s)
