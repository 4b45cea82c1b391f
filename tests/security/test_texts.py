"""No text of a message can become a control sequence, a further line, an option or a further word of a command."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daemons.config.controller import PowerExec, PowerKeys
from daemons.drivers.power.exec import ExecPower
from shared.base.errors import CodecError, InvalidValue
from shared.base.type_hints import bare, field_hints, inside, is_optional, is_record, is_row, is_sequence, row_hints
from shared.protocol.codec import decode, encode, pack, unpack
from shared.protocol.messages import MESSAGES, Message, Report
from shared.protocol.operator_messages import Query
from shared.protocol.topology import REPORTS, report_key
from shared.values.jobs import Job, Stage
from shared.values.nodes import Node, NodeSample, PowerOperation
from shared.values.scalars import check_name
from shared.values.texts import TextForm, cleaned, fits
from shared.values.vms import VmState, VmStatus
from tests.extent import examples
from tests.property.message_values import values
from tests.support.shell_harness import RealRig, wait_for

NEVER = (
    "\x1b]0;OWNED\x07",
    "a\x00b",
    "a\rb",
    "a\x08b",
    "\x9b31m",
    "\x7f",
    "\u202emoc",
    "a\u2028b",
    "\ufeffx",
    "x" * 5_000,
)
NO_LINE = ("a\nb", "a\tb")
NO_LABEL = ("-rf", "--file=/etc/shadow", "x" * 256, "a\u200bb")
NO_WORD = ("a b", "x; id > PWNED; #")
WRONG = {
    TextForm.WORD: (*NEVER, *NO_LINE, *NO_LABEL, *NO_WORD),
    TextForm.LABEL: (*NEVER, *NO_LINE, *NO_LABEL),
    TextForm.LINE: (*NEVER, *NO_LINE),
    TextForm.PROSE: NEVER,
}


@dataclass(frozen=True, slots=True)
class Stored:
    """A record of our own."""

    text: str


BAD_MAC = "x; id > PWNED; #"


def form_of(hint: Any) -> TextForm:
    notes = [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, TextForm)]
    return notes[0] if notes else TextForm.LINE


def texts_in(hint: Any, plain: Any) -> Iterator[tuple[Any, Any, TextForm]]:
    """Each text in a message as it travels, as (what it lies in, its key or index, the form that it must have)."""
    for holder, key, part in _parts(hint, plain):
        value = holder[key]
        if bare(part) is str and isinstance(value, str):
            yield holder, key, form_of(part)
        else:
            yield from texts_in(part, value)


def _parts(hint: Any, plain: Any) -> Iterator[tuple[Any, Any, Any]]:
    if is_optional(hint):
        if plain is not None:
            yield from _parts(inside(hint), plain)
    elif is_sequence(hint) and isinstance(plain, list):
        parts = get_args(hint)
        each = [parts[0]] * len(plain) if len(parts) == 1 or parts[-1] is Ellipsis else [*parts]
        yield from ((plain, at, part) for at, part in zip(range(len(plain)), each, strict=True))
    elif is_row(hint):
        yield from ((plain, at, part) for at, part in zip(range(len(plain)), row_hints(hint).values(), strict=False))
    elif is_record(hint):
        hints = field_hints(hint, annotated=True)
        yield from ((plain, name, hints[name]) for name in plain)
    elif isinstance(plain, dict):  # data without a declared type
        yield from ((plain, key, Any) for key in plain)


@pytest.mark.parametrize("cls", MESSAGES)
@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_text_of_every_message_is_held_to_its_form(cls: type[Message], data: st.DataObject) -> None:
    """Given a message, when any one of its texts is replaced by what its form does not allow, then it is no message."""
    envelope = msgpack.unpackb(encode(data.draw(values(cls))))
    for index, (_, _, form) in enumerate(list(texts_in(cls, envelope["b"]))):
        changed = copy.deepcopy(envelope)
        holder, key, _ = list(texts_in(cls, changed["b"]))[index]
        holder[key] = data.draw(st.sampled_from(WRONG[form]))
        with pytest.raises(CodecError):
            decode(msgpack.packb(changed))


def test_every_kind_of_message_has_a_text_that_was_tried() -> None:
    """The test above finds texts: those of an inventory, of rows and of nested values too."""
    report = Report(
        "n1",
        "b",
        1,
        clock_s=1.0,
        term=1,
        sample=NodeSample(),
        vms=(VmStatus("v", VmState.RUNNING),),
        inventory=Node("n1", 1, 1.0, memory_mib=1),
    )
    plain = msgpack.unpackb(encode(report))["b"]
    assert {holder[key] for holder, key, _ in texts_in(Report, plain)} >= {"n1", "b", "v"}
    without = [cls.KIND for cls in MESSAGES if not any(map(_has_text, field_hints(cls, annotated=True).values()))]
    assert without == ["hello", "events-seen"]


def _has_text(hint: Any) -> bool:
    if is_optional(hint):
        return _has_text(inside(hint))
    if is_sequence(hint):
        return any(_has_text(part) for part in get_args(hint) if part is not Ellipsis)
    if is_row(hint) or is_record(hint):
        hints = row_hints(hint) if is_row(hint) else field_hints(hint, annotated=True)
        return any(map(_has_text, hints.values()))
    return bare(hint) is str


@pytest.mark.parametrize("wrong", [*NEVER[:-1], *NO_LINE])
def test_usual_reports_are_held_to_it_on_the_fast_way_too(wrong: str) -> None:
    """A report as nearly all are: each of its texts, alone."""
    for field in ("node", "boot_id", "vm", "busy", "address", "definition"):
        texts = {"node": "n1", "boot_id": "b", "vm": "v#0", "busy": "", "address": "", "definition": ""} | {
            field: wrong
        }
        row = ["v#0", "running", 0, 0, 0, 1, 0.0, 0.0, 0, 0, 0, 0, "", True, "", 0.0, [], False, ""]
        row[0], row[12], row[14], row[18] = (texts[key] for key in ("vm", "busy", "address", "definition"))
        fields = {"node": texts["node"], "boot_id": texts["boot_id"], "seq": 1, "clock_s": 1.0, "term": 1}
        body = msgpack.packb({"k": "report", "v": 1, "b": {**fields, "sample": [], "vms": [row]}})
        with pytest.raises(CodecError, match="report"):
            decode(body)


@given(seed=st.integers(0, 1 << 32), form=st.sampled_from([TextForm.LABEL, TextForm.LINE, TextForm.PROSE]))
def test_what_is_sent_is_cleaned_so_that_nothing_honest_is_refused(seed: int, form: TextForm) -> None:
    """An odd VM of somebody else's, or what a program printed, silences no node."""
    rng = random.Random(seed)
    text = "".join(rng.choice("\x1b-A\n\u202e\ud800\U0001f600") for _ in range(rng.randint(0, 300)))
    assert fits(cleaned(text, form), form)
    report = Report(
        "n1", "b", 1, clock_s=1.0, term=1, sample=NodeSample(), vms=(VmStatus(text, VmState.RUNNING, managed=False),)
    )
    assert isinstance(decode(encode(report)), Report)


def test_records_of_our_own_hold_what_they_were_given() -> None:
    """What was stored or journalled before texts were looked at can be read."""
    status = Stored("a\x1bb\n")
    assert unpack(pack(status, Stored), Stored) == status


@pytest.mark.parametrize("name", ["-rf", "-", "--", "-a"])
def test_no_name_begins_with_a_dash(name: str) -> None:
    with pytest.raises(InvalidValue, match="the first no '-'"):
        check_name("name", name)
    with pytest.raises(InvalidValue):
        Job(name, (Stage(1.0, 1.0),))


@pytest.mark.parametrize("address", [BAD_MAC, "--file=/etc/shadow", "", "ff:ff:ff:ff:ff:ff", "02:00:00:00:00:01\n"])
def test_a_hardware_address_is_one(address: str, tmp_path: Path) -> None:
    """No inventory holds another; and should one reach a power driver, no program gets it."""
    with pytest.raises(InvalidValue, match="mac_addresses"):
        Node("n1", 4, 2_000.0, memory_mib=16_384, mac_addresses=(address,))
    told = tmp_path / "told"
    driver = ExecPower(PowerKeys(exec=PowerExec(wake=("/bin/sh", "-c", f'echo "$1" >{told}', "sh", "{mac}"))))
    assert not driver.operate(PowerOperation.WAKE, "n1", (address,)).ok
    assert not told.exists()
    assert driver.operate(PowerOperation.WAKE, "n1", (address, "02:00:00:00:00:01")).ok
    assert told.read_text() == "02:00:00:00:00:01\n"


def test_a_report_with_such_an_address_is_an_alarm_that_names_the_node(tmp_path: Path) -> None:
    """Given a cluster, when the account of n1 sends what would be run on a relay, then nothing of it is taken and
    operators see whose it was."""
    rig = RealRig(tmp_path, nodes=2)
    try:
        rig.start()
        good = Node("n1", 4, 2_000.0, memory_mib=16_384, mac_addresses=("02:00:00:00:00:01",))
        report = Report(
            "n1", "boot-1", 1 << 40, clock_s=rig.clock.now_s(), term=1, sample=NodeSample(), vms=(), inventory=good
        )
        body = encode(report)
        bad = body.replace(msgpack.packb("02:00:00:00:00:01"), msgpack.packb(BAD_MAC))
        assert bad != body

        rig.bus.connect("agent.n1").publish(REPORTS, report_key("n1"), bad)

        def alarms() -> list[dict[str, Any]]:
            data = rig.ask(Query("look", "status")).data
            return [alarm for alarm in data["alarms"] if alarm["what"] == "message-refused"]

        wait_for(alarms)
        (alarm,) = alarms()
        assert alarm["subject"] == "agent.n1"
        assert "mac_addresses" in alarm["detail"]
        core = rig.running[0].shell.core
        assert core.cluster.nodes["n1"].inventory.mac_addresses == ()  # type: ignore[attr-defined]
    finally:
        rig.end()
