"""The codec: what a body looks like, what is refused and how that is said, and that nobody can make it allocate."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from shared.base.errors import CodecError
from shared.policy_api.decision import Change, ChangeKind, PlacementDecision, Reason, ReasonCode
from shared.protocol.codec import decode, encode, pack, unpack
from shared.protocol.messages import MESSAGES, EventsSeen, Happened, Hello, Message, Order, Reply, Report, Result
from shared.protocol.operator_messages import AdoptVm, DrainNode, SetJob, SubmitJob
from shared.protocol.topology import BODY_BYTES_MAX
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.jobs import Allotment, Job, Rules, Stage
from shared.values.migration_terms import MigrationBounds
from shared.values.nodes import Node, NodeSample
from shared.values.vms import VmSpec, VmState, VmStatus
from tests.extent import only

STATUS = VmStatus("job#0", VmState.RUNNING, 1, attempt=1, memory_mib=4320, vcpus=1, cpu_mhz=3900.0, cpu_time_s=12.5)
ACTION = Action(
    "a-1",
    ActionKind.START,
    "n1",
    vm="job#0",
    term=7,
    boot_id="boot",
    expires_at_s=60.0,
    spec=VmSpec("job#0", 1, 1, memory_mib=4320, vcpus=1, cpu_mhz=3900.0),
)
REPORT = Report(
    "n1",
    "boot",
    1,
    clock_s=5.0,
    term=7,
    sample=NodeSample(0.5),
    vms=(STATUS,),
    inventory=Node("n1", 4, 3900.0, memory_mib=16_000),
)
USUAL = Report("n1", "boot", 1, clock_s=5.0, term=7, sample=NodeSample(0.5), vms=(STATUS,))
RESULT = Result(
    "n1",
    "boot",
    2,
    clock_s=6.0,
    term=7,
    action="a-1",
    kind=ActionKind.START,
    vm="job#0",
    outcome=Outcome.OK,
    status=STATUS,
)
SUBMIT = SubmitJob("r-1", Job("job", (Stage(1000.0, 3900.0),), goal_s=100.0))


def body_of(message: Message, **changes: Any) -> bytes:
    """The body of a message, with fields (or `k`, `v`, `b`) replaced."""
    envelope = msgpack.unpackb(encode(message))
    for name, value in changes.items():
        (envelope if name in ("k", "v", "b") else envelope["b"])[name] = value
    return bytes(msgpack.packb(envelope))


def refusal(body: bytes) -> str:
    with pytest.raises(CodecError) as caught:
        decode(body)
    assert len(str(caught.value)) < 400
    return str(caught.value)


# --- the form of a body ------------------------------------------------------------------------------------------


def test_rules_without_label_affinity_are_read_and_written_as_ever() -> None:
    """Peers that do not know the key understand requests that do not use it, and are understood."""
    rules = {"label_anti_affinity": ["old"]}
    for kind, body in (
        ("set-job", {"request": "r", "job": "a", "rules": rules}),
        ("adopt-vm", {"request": "r", "node": "n1", "vm": "a", "job": "a", "rules": rules}),
    ):
        message = decode(msgpack.packb({"k": kind, "v": 1, "b": body}))
        assert isinstance(message, SetJob | AdoptVm)
        assert (message.rules, message.checked) == (Rules(label_anti_affinity=("old",)), False)
        assert msgpack.unpackb(encode(message))["b"] == body


def test_a_body_is_an_envelope_without_defaults() -> None:
    assert msgpack.unpackb(encode(Hello(term=3))) == {"k": "hello", "v": 1, "b": {"term": 3}}
    assert msgpack.unpackb(encode(Order(ACTION, 2)))["b"]["action"]["spec"] == {
        "vm": "job#0",
        "generation": 1,
        "attempt": 1,
        "memory_mib": 4320,
        "vcpus": 1,
        "cpu_mhz": 3900.0,
    }


@pytest.mark.parametrize("message", [REPORT, USUAL, RESULT, SUBMIT, Order(ACTION), DrainNode("r", "n1", False)])
def test_messages_come_back_as_they_were(message: Message) -> None:
    assert decode(encode(message)) == message


def test_every_kind_of_message_has_a_name_of_its_own() -> None:
    assert len({cls.KIND for cls in MESSAGES}) == len(MESSAGES)
    assert all(1 <= cls.OLDEST <= cls.VERSION for cls in MESSAGES)


def test_a_whole_number_is_a_number_and_becomes_one() -> None:
    happened = decode(body_of(Happened(1.0, "x", "y"), at_s=5))
    assert isinstance(happened, Happened)
    assert happened.at_s == 5.0
    assert type(happened.at_s) is float


def test_the_largest_values_pass() -> None:
    text = "ä" * 4096
    for reply in (Reply("r", True, detail=text), Reply("ä" * 255, True)):
        assert decode(encode(reply)) == reply
    for term in (-(1 << 63), (1 << 63) - 1):
        assert decode(encode(Hello(term))) == Hello(term)
    vms = tuple(VmStatus(f"job#{index}", VmState.RUNNING) for index in range(10_000))
    large = Report("n1", "boot", 1, clock_s=5.0, term=7, sample=NodeSample(), vms=vms)
    assert decode(encode(large)) == large


# --- nothing is coerced ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["12", True, 1.0, None, b"1", [1], {"a": 1}, 1 << 63, -(1 << 63) - 1, (1 << 64) - 1])
def test_only_whole_numbers_are_whole_numbers(wrong: Any) -> None:
    if isinstance(wrong, int) and wrong < -(1 << 63):
        with pytest.raises(CodecError, match=r"hello\.term: expected a whole number"):
            encode(Hello(wrong))
        return
    body = body_of(Hello(3), term=wrong)
    assert "hello.term: expected a whole number" in refusal(body)


@pytest.mark.parametrize("wrong", ["1.0", True, float("nan"), float("inf"), -float("inf"), None, [1.0], 1 << 63])
def test_only_finite_numbers_are_numbers(wrong: Any) -> None:
    assert "report.sample.cpu_frac: expected a finite number" in refusal(body_of(REPORT, sample=[wrong]))
    with pytest.raises(CodecError, match=r"report\.sample\.cpu_frac: expected a finite number"):
        encode(Report("n1", "boot", 1, clock_s=5.0, term=7, sample=NodeSample(wrong), vms=()))


@pytest.mark.parametrize("wrong", [1, 0, "true", None, 1.0, []])
def test_only_true_and_false_are_booleans(wrong: Any) -> None:
    assert "drain-node.on: expected true or false" in refusal(body_of(DrainNode("r", "n", True), on=wrong))
    with pytest.raises(CodecError, match=r"drain-node\.on: expected true or false"):
        encode(DrainNode("r", "n", wrong))


@pytest.mark.parametrize("wrong", [1, None, True, ["a"], "x" * 4097, "ä" * 4097])
def test_only_short_strings_are_strings(wrong: Any) -> None:
    assert "reply.request: expected a string of at most 4096" in refusal(body_of(Reply("r", True), request=wrong))
    with pytest.raises(CodecError, match=r"reply\.request: expected a string of at most 4096"):
        encode(Reply(wrong, True))


def test_lone_surrogates_are_not_text() -> None:
    with pytest.raises(CodecError, match=r"reply\.request: expected a(t most| string)"):
        encode(Reply("a\ud800", True))
    assert "undecodable" in refusal(encode(Reply("abc", True)).replace(b"abc", b"\xed\xa0\x80"))


@pytest.mark.parametrize("wrong", ["START", "", 0, None, ["start"], {"start": 1}, "ok"])
def test_enums_are_their_values_only(wrong: Any) -> None:
    assert "result.kind: expected one of start, stop, " in refusal(body_of(RESULT, kind=wrong))
    with pytest.raises(CodecError, match=r"result\.kind: expected a ActionKind"):
        encode(Result("n1", "boot", 2, clock_s=6.0, term=7, action="a-1", kind=wrong, vm="job#0", outcome=Outcome.OK))


@pytest.mark.parametrize("wrong", ["ab", {"a": 1}, None, 3, {}])
def test_only_arrays_are_tuples(wrong: Any) -> None:
    assert "report.vms: expected an array" in refusal(body_of(REPORT, vms=wrong))


@pytest.mark.parametrize("wrong", [[], "ab", None, 3, [["cpu_frac", 1.0]], ()])
def test_only_maps_are_records(wrong: Any) -> None:
    assert "report.inventory: expected a map" in refusal(body_of(REPORT, inventory=wrong or 1))
    assert "report: expected a map" in refusal(body_of(REPORT, b=wrong))


@pytest.mark.parametrize("wrong", ["ab", None, 3, {}, {"vm": "a", "state": "running"}, ["a"], ["a", "running"] * 50])
def test_only_arrays_of_the_right_length_are_rows(wrong: Any) -> None:
    most = len(VmStatus.__struct_fields__)
    assert f"report.vms[0]: expected an array of 2 to {most}, got " in refusal(body_of(USUAL, vms=[wrong]))


def test_a_row_is_an_array_that_may_leave_out_the_last_fields() -> None:
    rows = [["job#1", "running"], ["job#2", "paused", 3]]
    report = decode(body_of(USUAL, sample=[], vms=rows))
    vms = (VmStatus("job#1", VmState.RUNNING), VmStatus("job#2", VmState.PAUSED, 3))
    assert report == replace(USUAL, sample=NodeSample(), vms=vms)


# --- what is said ------------------------------------------------------------------------------------------------


def test_the_innermost_wrong_field_is_named() -> None:
    vm = ["job#1", "running", 0, 0, 0]
    assert "report.vms[1].vcpus: expected a whole number of at most 64 bits, got 'two'" in refusal(
        body_of(REPORT, vms=[vm, [*vm, "two"]])
    )
    doing = {"id": "a-1", "kind": "start", "vm": "job#1"}
    assert "report.in_progress[0]: expected no field 'colour', got a map of 4" in refusal(
        body_of(REPORT, in_progress=[{**doing, "colour": "red"}])
    )
    del doing["kind"]
    assert "report.in_progress[0]: expected a field 'kind', got a map of 2" in refusal(
        body_of(REPORT, in_progress=[doing])
    )


def test_a_field_that_is_not_known_is_named_where_one_is_missing_too() -> None:
    doing = {"id": "a-1", "knid": "start", "vm": "job#1"}
    assert "report.in_progress[0]: expected no field 'knid'" in refusal(body_of(REPORT, in_progress=[doing]))


def test_the_place_is_named_in_a_large_body_too() -> None:
    rows = [["x" * 255, "running"]] * 1000
    assert "report.vms[1000].state: expected one of " in refusal(body_of(REPORT, vms=[*rows, ["a", 3]]))


def test_what_the_model_refuses_is_named_too() -> None:
    job = msgpack.unpackb(encode(SUBMIT))["b"]["job"]
    assert refusal(body_of(SUBMIT, job={**job, "instances": 0})) == (
        "submit-job.job: instances is 0, expected a whole number from 1 to 65536"
    )
    assert refusal(body_of(SUBMIT, job={**job, "stages": [{"work_mcycles": 1, "max_mhz": 0}]})) == (
        "submit-job.job.stages[0]: max_mhz is 0.0, expected a finite number above 0"
    )
    assert "report.inventory: name is '../x'" in refusal(
        body_of(REPORT, inventory={"name": "../x", "cores": 1, "core_mhz": 1, "memory_mib": 1})
    )


@pytest.mark.parametrize("version", [0, 2, -1, True, "1", None, 1 << 63, 1.0])
def test_other_versions_are_refused_by_both_numbers(version: Any) -> None:
    told = refusal(body_of(Hello(3), v=version))
    assert told.startswith("hello: version ")
    assert told.endswith(", expected 1 to 1")


@pytest.mark.parametrize("kind", ["helo", "", None, 3, ["hello"], "x" * 4000])
def test_unknown_kinds_are_refused(kind: Any) -> None:
    assert "no message is of kind" in refusal(body_of(Hello(3), k=kind))


@pytest.mark.parametrize("envelope", [None, [], {}, {"k": "hello", "v": 1}, {"k": "hello", "v": 1, "b": {}, "x": 1}, 7])
def test_other_envelopes_are_refused(envelope: Any) -> None:
    assert "expected a map of k, v and b" in refusal(msgpack.packb(envelope))


@pytest.mark.parametrize(
    "body",
    [
        body_of(Reply("r", True), request=["z" * 4000]),
        body_of(Reply("r", True), request="z" * 4097),
        body_of(Reply("r", True), **{"z" * 4000: 1}),
        body_of(Reply("r", True), k="z" * 4000),
        body_of(RESULT, kind="z" * 4000),
        body_of(SUBMIT, job={"name": "z" * 4000, "stages": [{"work_mcycles": 1, "max_mhz": 1}]}),
        b"z" * 4000,
    ],
)
def test_errors_do_not_echo_the_input(body: bytes) -> None:
    assert "z" * 81 not in refusal(body)


def test_what_is_no_message_is_not_encoded() -> None:
    with pytest.raises(CodecError, match="expected a message, got a VmStatus"):
        encode(STATUS)  # type: ignore[arg-type]
    with pytest.raises(CodecError, match=r"order\.action: expected a Action"):
        encode(Order(None))  # type: ignore[arg-type]
    with pytest.raises(CodecError, match=r"report\.vms\[0\]: expected a VmStatus, got a VmSpec"):
        encode(
            Report(
                "n1",
                "b",
                1,
                clock_s=5.0,
                term=7,
                sample=NodeSample(),
                vms=(VmSpec("a#0", 1, 1, memory_mib=1, vcpus=1, cpu_mhz=1.0),),  # type: ignore[arg-type]
            )
        )
    with pytest.raises(CodecError, match=r"report: .* bytes, expected at most|report: expected at most"):
        encode(
            Report(
                "n1",
                "b",
                1,
                clock_s=5.0,
                term=7,
                sample=NodeSample(),
                vms=(VmStatus("x" * 255, VmState.ENDED),) * 20_000,
            )
        )


# --- bytes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        encode(Hello(3)) + b"\xc0",
        encode(Hello(3))[:-1],
        b"\x83\xa1k\xa5hello\xa1v\x01\xa1b\x82\xa4term\x01\xa4term\x02",  # a key twice
        b"\x84\xa1k\xa5hello\xa1v\x01\xa1b\x81\xa4term\x01\xa1v\x01",
        b"\x83\xa1k\xa5hello\xa1v\x01\xa1b\x81\xc4\x04term\x01",  # bin as key
        b"\x83\xa1k\xa5hello\xa1v\x01\xa1b\x81\xc4\x00\x01",
        b"\x83\xa1k\xa5hello\xa1v\x01\xa1b\x81\x01\x01",  # a number as key
        b"\x83\xa1k\xa5hello\xa1v\x01\xa1b\x81\xa4term\xd6\xff\x00\x00\x00\x00",  # timestamp
        b"\x83\xa1k\xa5hello\xa1v\x01\xa1b\x81\xa4term\xd4\x05\x00",  # ext
        b"\x83\xa1k\xa5hello\xa1v\x01\xa1b\x81\xa4term\xc7\x00\x05",  # empty ext
        b"\x83\xa1k\xa5hello\xa1v\x01\xa1b\x81\xa4term\xc4\x00",  # empty bin
        b"\x83\xa1k\xa5hell\xff\xa1v\x01\xa1b\x81\xa4term\x01",  # not UTF-8
        b"\x91" * 500,
        b"\x91" * 500 + b"\xc0",
        b"\x91" * 5000 + b"\xc0",
        b"\x81\xa1a" * 5000 + b"\xc0",
        b"\x81" * 5000,
    ],
)
def test_bytes_that_are_no_body_are_refused(body: bytes) -> None:
    refusal(body)


HOSTILE = {
    "array of 2^32": b"\xdd\xff\xff\xff\xff",
    "map of 2^32": b"\xdf\xff\xff\xff\xff",
    "string of 2^32": b"\xdb\xff\xff\xff\xff",
    "bin of 2^32": b"\xc6\xff\xff\xff\xff",
    "ext of 2^32": b"\xc9\xff\xff\xff\xff\x05",
    "nested arrays of 65535": b"\xdc\xff\xff" * 1000 + b"\xc0" * 62_000,
    "nested arrays of 60000": b"\xdd\x00\x00\xea\x60" * 12_000,
    "nested maps of 1024": b"\xde\x04\x00\xa0" * 1000 + b"\xc0" * 20_000,
    "many empty maps": b"\xdd\x00\x3f\xff\xf0" + b"\x80" * 4_194_288,
    "many arrays of empty maps": b"\xdc\x00\x3f" + (b"\xdc\xff\xff" + b"\x80" * 65_535) * 63,
    "many maps of one": b"\xdc\x00\x14" + (b"\xdc\xff\xff" + b"\x81\xa0\xc0" * 65_535) * 20,
    "many short strings": b"\xdc\x00\x14" + (b"\xdc\xff\xff" + b"\xa2zz" * 65_535) * 20,
    "many numbers": b"\xdc\x00\x06" + (b"\xdc\xff\xff" + b"\xcb" + struct.pack(">d", 1.5)) * 6,
    "deep arrays": b"\x91" * 4_000_000,
    "deep maps": b"\x81\xa0" * 2_000_000,
    "10 MiB of garbage": b"\x93" * (10 << 20),
    "10 MiB of text": b"\xdb\x00\xa0\x00\x00" + b"z" * (10 << 20),
    "4 MiB of zeros": bytes(BODY_BYTES_MAX),
}


LONG = ("many empty maps", "many arrays of empty maps", "many maps of one", "many short strings")


@pytest.mark.parametrize("name", only(HOSTILE.keys() - LONG, HOSTILE))
def test_no_body_makes_the_codec_allocate_without_bound(name: str) -> None:
    body = HOSTILE[name]
    tracemalloc.start()
    try:
        refusal(body)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 24 * (1 << 20) + 20 * min(len(body), BODY_BYTES_MAX)


def test_a_long_list_of_wrong_items_is_told_by_its_first() -> None:
    assert "report.vms[999].state: " in refusal(body_of(REPORT, vms=[["a", "running"]] * 999 + [["a", 3]] * 1000))


# --- records -----------------------------------------------------------------------------------------------------


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Record:
    """Every shape that a record may have."""

    name: str
    pair: tuple[str, float] = ("", 0.0)
    pairs: tuple[tuple[str, int], ...] = ()
    parts: Sequence[Allotment] = ()
    colour: Colour | None = None
    state: Any = None


def test_records_of_every_shape_come_back() -> None:
    record = Record("a", ("b", 1.5), (("c", 1), ("d", 2)), [Allotment("n1", 5.0)], Colour.RED, {"x": [1, 2.5, None]})
    back = unpack(pack(record, Record), Record)
    assert back == Record("a", ("b", 1.5), (("c", 1), ("d", 2)), (Allotment("n1", 5.0),), Colour.RED, record.state)
    decision = PlacementDecision((Change("j", 1, ChangeKind.START, (), Reason(ReasonCode.KEEP, (("x", 1.0),))),))
    assert unpack(pack(decision, PlacementDecision), PlacementDecision) == decision


@pytest.mark.parametrize(
    ("plain", "told"),
    [
        ({"name": "a", "pair": ["b"]}, "Record.pair: expected an array of 2, got a list of 1"),
        ({"name": "a", "pair": ["b", "c"]}, r"Record.pair\[1\]: expected a finite number, got 'c'"),
        ({"name": "a", "pairs": [["b", 1], ["c", 1.5]]}, r"Record.pairs\[1\]\[1\]: expected a whole number"),
        ({"name": "a", "state": [[[[[[[[[[]]]]]]]]]]}, "Record.state: expected plain data"),
        ({"name": "a", "state": float("nan")}, "Record.state: expected a finite number"),
        ({}, "Record: expected a field 'name'"),
    ],
)
def test_wrong_records_are_refused(plain: Any, told: str) -> None:
    with pytest.raises(CodecError, match=told):
        unpack(msgpack.packb(plain), Record)


@dataclass(frozen=True, slots=True)
class Row:
    """Fields with and without defaults."""

    name: str
    size: int = 3
    pace: float = 1.5
    marks: tuple[str, ...] = field(default_factory=lambda: ("a", "b"))
    note: str | None = None


@pytest.mark.parametrize(
    ("row", "written"),
    [
        (Row("a"), {"name": "a"}),
        (Row("a", int("3"), float("1.5"), tuple("ab"), None), {"name": "a"}),  # equal to the defaults, not the same
        (Row("a", 4, 2.5, ("x",), ""), {"name": "a", "size": 4, "pace": 2.5, "marks": ["x"], "note": ""}),
        (Row("a", 0, 0.0, ()), {"name": "a", "size": 0, "pace": 0.0, "marks": []}),
    ],
)
def test_what_is_at_its_default_is_left_out(row: Row, written: dict[str, Any]) -> None:
    assert msgpack.unpackb(pack(row, Row)) == written
    assert unpack(pack(row, Row), Row) == row


def test_an_agent_that_reports_no_migration_bounds_has_the_defaults() -> None:
    """And one with the defaults does not send them, so that a controller that does not know them understands it."""
    node = Node("n1", 4, 2_000.0, memory_mib=8_000)
    packed = msgpack.unpackb(pack(node, Node))
    assert "migration_bounds" not in packed
    assert unpack(msgpack.packb(packed), Node).migration_bounds == MigrationBounds(300.0, 300, 0)
    told = replace(node, migration_bounds=MigrationBounds(900.0))
    assert unpack(pack(told, Node), Node) == told


def test_what_cannot_be_written_is_told_by_its_place() -> None:
    wrong: list[tuple[Any, str]] = [
        (Record("a", pair=("b", "c")), r"Record\.pair\[1\]: expected a finite number, got 'c'"),  # type: ignore[arg-type]
        (Record("a", pair=("b",)), r"Record\.pair: expected a tuple of 2, got a list of 1"),  # type: ignore[arg-type]
        (Record("a", pairs=(("b", 1), ("c", 1.5))), r"Record\.pairs\[1\]\[1\]: expected a whole number"),  # type: ignore[arg-type]
        (Record("a", parts=[Allotment("n1", 5.0), None]), r"Record\.parts\[1\]: expected a Allotment, got None"),  # type: ignore[list-item]
        (Record("a", parts="ab"), r"Record\.parts: expected a sequence, got 'ab'"),  # type: ignore[arg-type]
    ]
    for record, told in wrong:
        with pytest.raises(CodecError, match=told):
            pack(record, Record)


def test_a_record_is_packed_as_its_own_class_only() -> None:
    class Other(Row):
        """A class that is derived from another."""

    for value in (Other("a"), None, {"name": "a"}):
        with pytest.raises(CodecError, match="Row: expected a Row, got "):
            pack(value, Row)
    with pytest.raises(CodecError, match="EventsSeen: expected a EventsSeen, got a Hello"):
        pack(Hello(3), EventsSeen)
    with pytest.raises(CodecError, match=r"Record\.state: expected plain data"):
        pack(Record("a", state=object()), Record)
