"""What a shell logs of its core's inputs and effects: enough to follow one action by its id from the controller's
order to the result, through the logs of both ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from shared.ports import effects as fx
from shared.protocol.account_messages import Assess, OnBehalf
from shared.protocol.messages import (
    AbortAction,
    GoToSleep,
    GuestEvent,
    Happened,
    Hello,
    Message,
    NoReading,
    Order,
    Report,
    Result,
    RunStandardJob,
    SetUpAnswer,
    SetUpNode,
    SleepAnswer,
    StandardJobEnded,
    Watch,
)
from shared.protocol.operator_messages import CheckReservation, CheckRules, CheckVmFit, DryRun, Query, Request
from shared.values.actions import Action, Outcome


@dataclass(frozen=True, slots=True)
class LogLine:
    """One event for the log: its level (a method of a logger), its name and what it carries. `subject`: what may say
    the same again and again, see `Repeats` ("": nothing)."""

    level: str
    event: str
    fields: dict[str, Any] = field(default_factory=dict)
    subject: str = ""


REPEAT_S = 3600.0
_READS = Query | DryRun | Assess | CheckReservation | CheckRules | CheckVmFit


class Repeats:
    """Keeps repeated messages from filling the log: a line about a subject is logged once in `REPEAT_S`. In between it
    is logged for debugging only."""

    def __init__(self) -> None:
        self._told_s: dict[tuple[str, str], float] = {}

    def level(self, line: LogLine, now_s: float) -> str:
        """Return the level for a line; `now_s` is from a clock that cannot be set."""
        if not line.subject:
            return line.level
        key = (line.event, line.subject)
        if now_s < self._told_s.get(key, -REPEAT_S) + REPEAT_S:
            return "debug"
        self._told_s = {each: told_s for each, told_s in self._told_s.items() if now_s < told_s + REPEAT_S}
        self._told_s[key] = now_s
        return line.level


def is_told(count: int, always: int) -> bool:
    """Return whether to log an occurrence, the `count`th: the first `always`, then each power of two."""
    return count <= always or count & (count - 1) == 0


def of_input(event: fx.Input) -> LogLine | None:
    """Return the log line of an input, None for inputs too frequent to log."""
    if type(event) is fx.Received:
        if type(event.message) is Report:
            return None  # hundreds a second at a controller
        return _message(event.message, "received", event.sender)
    tell = _INPUTS.get(type(event))
    return None if tell is None else tell(event)


def of_effect(effect: fx.Effect) -> LogLine | None:
    """Return the log line of an effect just before it is carried out, None for effects too frequent to log."""
    tell = _EFFECTS.get(type(effect))
    return None if tell is None else tell(effect)


def of_sent(message: Message) -> LogLine | None:
    """Return the log line of a message that was just passed to the broker, None for messages too frequent to log."""
    return _message(message, "sent", "")


def _message(message: Message, how: str, sender: str) -> LogLine | None:
    if isinstance(message, Report):
        return LogLine("debug", f"report {how}", {"node": message.node, "term": message.term, "seq": message.seq})
    if isinstance(message, NoReading):
        return LogLine("debug", f"no reading {how}", _said({"node": message.node, "detail": message.detail}))
    if isinstance(message, Order):
        return LogLine("info", f"order {how}", _action(message.action))
    if isinstance(message, Result):
        return LogLine("info", f"result {how}", _result(message))
    if isinstance(message, GuestEvent):
        fields = {
            "node": message.node,
            "vm": message.status.vm,
            "change": message.change.value,
            "number": message.event,
        }
        return LogLine("info", f"guest event {how}", fields)
    if isinstance(message, Happened):
        fields = {"what": message.what, "subject": message.subject, "term": message.term, "detail": message.detail}
        return LogLine("info", "happened", _said(fields)) if how == "sent" else None
    if isinstance(message, GoToSleep):
        fields = {"node": message.node, "request": message.request, "mode": message.mode.value, "term": message.term}
        return LogLine("info", f"go to sleep {how}", fields)
    if isinstance(message, AbortAction):
        fields = {"node": message.node, "action": message.action, "term": message.term}
        return LogLine("info", f"abort {how}", fields)
    if isinstance(message, SleepAnswer):
        fields = {"node": message.node, "request": message.request, "ok": message.ok, "detail": message.detail}
        return LogLine("info", f"sleep answer {how}", _said(fields))
    if isinstance(message, SetUpNode):
        fields = {
            "node": message.node,
            "request": message.request,
            "environment": message.environment,
            "step": message.step.value,
            "policy": message.setup.policy.value,
            "term": message.term,
        }
        return LogLine("info", f"set up {how}", fields)
    if isinstance(message, SetUpAnswer):
        fields = {"node": message.node, "request": message.request, "ok": message.ok, "output": message.output}
        return LogLine("info", f"set up answer {how}", _said(fields))
    if isinstance(message, RunStandardJob):
        fields = {"node": message.node, "request": message.request, "job": message.run.job.value, "term": message.term}
        return LogLine("info", f"standard job {how}", fields)
    if isinstance(message, StandardJobEnded):
        fields = {"node": message.node, "request": message.request, "ok": message.ok, "detail": message.detail}
        return LogLine("info", f"standard job answer {how}", _said(fields))
    if isinstance(message, Watch):
        fields = {"term": message.term, "number": message.number, "targets": len(message.targets)}
        return LogLine("info", f"watch {how}", fields)
    if isinstance(message, Hello):  # a controller says it to every node, and once a minute to those that are silent
        return LogLine("info" if how == "received" else "debug", f"hello {how}", {"term": message.term})
    if isinstance(message, Request | OnBehalf):
        return _request(message, how, sender)
    return None


def _request(message: Request | OnBehalf, how: str, sender: str) -> LogLine:
    """Return the log line of a request. Read-only requests come many times a second from viewers, so they are logged at
    debug level. So are requests on behalf of an account: most are read-only, and the others are logged as `Audited`."""
    fields = {"kind": message.KIND, "request": message.request, "sender": sender}
    if isinstance(message, OnBehalf):
        fields |= {"account": message.account}
    elif isinstance(message, Query):
        fields |= {"what": message.what, "subject": message.subject}
    reads = isinstance(message, _READS | OnBehalf)
    return LogLine("debug" if reads else "info", f"request {how}", _said(fields))


def _action(action: Action) -> dict[str, Any]:
    return _said(
        {
            "action": action.id,
            "kind": action.kind.value,
            "vm": action.vm,
            "node": action.node,
            "to_node": action.to_node,
            "term": action.term,
        }
    )


def _result(result: Result) -> dict[str, Any]:
    return _said(
        {
            "action": result.action,
            "kind": result.kind.value,
            "vm": result.vm,
            "node": result.node,
            "term": result.term,
            "outcome": result.outcome.value,
            "detail": result.detail,
        }
    )


def _said(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that are not empty."""
    return {key: value for key, value in fields.items() if value != ""}


def _operated(done: fx.Operated) -> LogLine:
    level = "info" if done.outcome is Outcome.OK else "warning"
    fields = {"action": done.call_id, "outcome": done.outcome.value, "detail": done.detail}
    return LogLine(level, "operation ended", _said(fields))


def _guest_changed(changed: fx.GuestChanged) -> LogLine:
    return LogLine("info", "guest changed", {"vm": changed.status.vm, "change": changed.change.value})


def _computed(computed: fx.Computed) -> LogLine:
    if computed.error:
        return LogLine("error", "decision failed", {"compute": computed.compute_id, "error": computed.error})
    return LogLine("info", "decision computed", {"compute": computed.compute_id})


def _written(written: fx.Written) -> LogLine | None:
    if written.ok:
        return None
    return LogLine("error", "store write failed", {"stale": written.stale, "detail": written.detail})


def _lead_taken(taken: fx.LeadTaken) -> LogLine:
    if taken.term > 0:
        return LogLine("info", "lead taken", {"term": taken.term})
    return LogLine("error", "the store did not give the lead")


def _power_done(done: fx.PowerDone) -> LogLine:
    fields = {"node": done.node, "operation": done.operation, "ok": done.ok, "detail": done.detail}
    return LogLine("info" if done.ok else "warning", "power done", _said(fields))


def _sleep_ended(ended: fx.SleepEnded) -> LogLine:
    if ended.ok:
        return LogLine("info", "awake again")
    return LogLine("warning", "the host did not go to sleep", _said({"detail": ended.detail}))


def _host_set_up(ended: fx.HostSetUp) -> LogLine:
    fields = {"request": ended.request, "output": ended.output}
    return LogLine("info" if ended.ok else "warning", "setup ended" if ended.ok else "setup failed", _said(fields))


def _standard_ran(ended: fx.StandardRan) -> LogLine:
    fields = {"request": ended.request, "copies": len(ended.paces), "detail": ended.detail}
    return LogLine(
        "info" if ended.ok else "warning", "standard job ended" if ended.ok else "no standard job", _said(fields)
    )


def _standard_begun(effect: fx.RunStandard) -> LogLine:
    run = effect.run
    fields = {"request": effect.request, "job": run.job.value, "run_s": run.run_s, "copies": run.copies}
    return LogLine("info", "standard job begun", fields)


def _setup_begun(effect: fx.SetUpHost) -> LogLine:
    setup = effect.setup
    fields = {"request": effect.request, "environment": effect.environment, "step": effect.step.value}
    return LogLine("info", "setup begun", _said(fields | {"policy": setup.policy.value, "command": setup.command}))


def _asked(asked: fx.Audited) -> LogLine:
    return LogLine("info", "asked", _said(asdict(asked) | {"at_s": ""}))


def _scraped(scraped: fx.Scraped) -> LogLine | None:
    if not scraped.error:
        return None
    fields = {"app": scraped.app, "error": scraped.error}
    return LogLine("warning", "web application not measured", fields, scraped.app)


def _probed(probed: fx.Probed) -> LogLine | None:
    if not probed.detail:
        return None
    return LogLine("info", "probe failed", {"vm": probed.vm, "ok": probed.ok, "detail": probed.detail}, probed.vm)


_INPUTS: dict[type, Callable[[Any], LogLine | None]] = {
    fx.Operated: _operated,
    fx.GuestChanged: _guest_changed,
    fx.Computed: _computed,
    fx.Written: _written,
    fx.LeadTaken: _lead_taken,
    fx.PowerDone: _power_done,
    fx.SleepEnded: _sleep_ended,
    fx.HostSetUp: _host_set_up,
    fx.StandardRan: _standard_ran,
    fx.Scraped: _scraped,
    fx.Probed: _probed,
    fx.Published: lambda it: None if it.ok else LogLine("warning", "publish refused", {"publish": it.publish_id}),
}
_EFFECTS: dict[type, Callable[[Any], LogLine | None]] = {
    fx.Operate: lambda it: LogLine("info", "operation begun", _action(it.action)),
    fx.Abort: lambda it: LogLine("warning", "operation aborted", {"vm": it.vm}),
    fx.Forget: lambda it: LogLine("info", "definition removed", {"vm": it.vm}),
    fx.DeadLetter: lambda it: LogLine("warning", "delivery refused", {"delivery": it.delivery, "reason": it.reason}),
    fx.Power: lambda it: LogLine("warning", "power asked", {"node": it.node, "operation": it.operation}),
    fx.SleepHost: lambda it: LogLine("warning", "the host goes to sleep", {"mode": it.mode.value}),
    fx.SetUpHost: _setup_begun,
    fx.RunStandard: _standard_begun,
    fx.TakeLead: lambda it: LogLine("info", "taking the lead", {"controller": it.controller}),
    fx.Compute: lambda it: LogLine("debug", "decision asked", {"compute": it.compute_id, "limit_s": it.limit_s}),
    fx.Exit: lambda it: LogLine("warning", "exit", {"reason": it.reason}),
    fx.Audited: _asked,
    fx.Declare: lambda it: LogLine("info", "queue declared", {"queue": it.queue.name}),
}
