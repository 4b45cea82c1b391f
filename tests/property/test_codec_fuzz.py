"""The codec under random input: valid messages come back, everything else is a `CodecError` and nothing more."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from enum import Enum
from itertools import chain
from types import NoneType
from typing import Any, get_args, get_type_hints

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.policy_api.decision import PlacementDecision, Plan, ProvisioningDecision
from shared.protocol.codec import decode, decode_strictly, encode, pack, unpack
from shared.protocol.messages import MESSAGES, Message, Report
from shared.values.jobs import Job
from shared.values.nodes import Node, NodeSample
from shared.values.operation_costs import OperationCosts
from shared.values.vms import VmState, VmStatus
from tests.extent import examples, first
from tests.property.decoded import fate, leaves, outcome
from tests.property.message_values import (
    ANYTHING,
    PLAIN,
    TEXT,
    declared,
    is_row,
    values,
)

ANY_MESSAGE: st.SearchStrategy[Message] = st.one_of([values(cls) for cls in MESSAGES])


@pytest.mark.parametrize("cls", MESSAGES)
@settings(max_examples=examples(16))
@given(data=st.data())
def test_every_valid_message_comes_back(cls: type[Message], data: st.DataObject) -> None:
    message = data.draw(values(cls))
    back = decode(encode(message))
    assert back == message
    assert type(back) is cls
    assert all(type(one) is type(other) for one, other in zip(leaves(message), leaves(back), strict=True))


@pytest.mark.parametrize("cls", [Plan, PlacementDecision, ProvisioningDecision, Job, Node, OperationCosts])
@settings(max_examples=examples(16))
@given(data=st.data())
def test_every_valid_record_comes_back(cls: type[Any], data: st.DataObject) -> None:
    record = data.draw(values(cls))
    assert unpack(pack(record, cls), cls) == record


@settings(max_examples=examples(160))
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(body: bytes) -> None:
    assert outcome(body) is None


@settings(max_examples=examples(120))
@given(ANYTHING)
def test_random_values_are_refused(plain: Any) -> None:
    assert outcome(msgpack.packb(plain)) is None


@settings(max_examples=examples(120))
@given(cls=st.sampled_from(MESSAGES), plain=ANYTHING, version=ANYTHING | st.just(1))
def test_random_content_in_an_envelope_never_breaks_out(cls: type[Message], plain: Any, version: Any) -> None:
    message = outcome(msgpack.packb({"k": cls.KIND, "v": version, "b": plain}))
    assert message is None or type(message) is cls


@settings(max_examples=examples(160))
@given(message=ANY_MESSAGE, seed=st.integers(0, 1 << 32))
def test_damaged_bytes_never_break_out(message: Message, seed: int) -> None:
    rng, body = random.Random(seed), bytearray(encode(message))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(body))
        if rng.random() < 0.7:
            body[at] = rng.randrange(256)
        elif rng.random() < 0.5:
            del body[at]
        else:
            body.insert(at, rng.randrange(256))
        if not body:
            break
    outcome(bytes(body))


@settings(max_examples=examples(80))
@given(message=ANY_MESSAGE, seed=st.integers(0, 1 << 32))
def test_a_cut_or_longer_body_is_refused(message: Message, seed: int) -> None:
    body = encode(message)
    assert outcome(body[: random.Random(seed).randrange(len(body))]) is None
    assert outcome(body + b"\x00") is None


@settings(max_examples=examples(160))
@given(message=ANY_MESSAGE, seed=st.integers(0, 1 << 32))
def test_a_value_of_another_type_is_refused(message: Message, seed: int) -> None:
    envelope, places = _fields_of(message)
    rng = random.Random(seed)
    table, name, hint, _ = rng.choice([place for place in places if place[2] is not Any])  # Any has no wrong type
    table[name] = rng.choice(_wrong_for(hint))
    assert outcome(msgpack.packb(envelope)) is None


@settings(max_examples=examples(120))
@given(message=ANY_MESSAGE, seed=st.integers(0, 1 << 32))
def test_a_missing_field_is_refused_and_a_field_with_a_default_is_not(message: Message, seed: int) -> None:
    envelope, places = _fields_of(message)
    table, name, _, required = random.Random(seed).choice(places)
    was_there = table.pop(name, None) is not None
    changed = outcome(msgpack.packb(envelope))
    if required:
        assert changed is None
    elif not was_there:
        assert changed == message
    else:  # another valid message, unless what is left breaks a relation between fields
        assert changed is None or changed != message


@settings(max_examples=examples(80))
@given(message=ANY_MESSAGE, seed=st.integers(0, 1 << 32), extra=TEXT, plain=PLAIN)
def test_an_unknown_field_is_refused(message: Message, seed: int, extra: str, plain: Any) -> None:
    envelope, places = _fields_of(message)
    table = random.Random(seed).choice(places)[0]
    known = {name for owner, name, _, _ in places if owner is table}
    table[extra if extra not in known else extra + "_"] = plain
    assert outcome(msgpack.packb(envelope)) is None


# --- the fast way and the strict way -----------------------------------------------------------------------------

ROW_VALUES = (
    ANYTHING
    | st.sampled_from(
        [
            0,
            1,
            -1,
            True,
            False,
            "running",
            "no-such-state",
            "",
            "a#0",
            b"a",
            1.0,
            1e300,
            float("nan"),
            float("inf"),
            -0.0,
        ]
    )
    | st.sampled_from([2**n + d for n in (7, 31, 53, 62, 63) for d in (-1, 0, 1)])
    | st.sampled_from([-(2**n) + d for n in (7, 31, 53, 63) for d in (0, 1)])
    | st.sampled_from(["x" * 4096, "x" * 4097, "\U0001f600" * 4096, "\ud800"])
)
HEADS = [0x80, 0x87, 0x90, 0x9B, 0x9E, 0xA0, *range(0xC0, 0xE0), 0x7F, 0xFF]  # first bytes of msgpack values
REPORT_HEAD = msgpack.packb({"k": Report.KIND, "v": Report.VERSION, "b": None})[:-1]
FIELDS = ["node", "vms", "term", "events", "inventory", "other"]
USUAL = values(Report).map(lambda report: replace(report, in_progress=(), events=(), inventory=None))


def assert_same_fate(body: bytes) -> None:
    assert fate(decode, body) == fate(decode_strictly, body)


@settings(max_examples=examples(120))
@given(report=USUAL, seed=st.integers(0, 1 << 32))
def test_damaged_reports_meet_the_same_fate_on_both_ways(report: Report, seed: int) -> None:
    rng, whole = random.Random(seed), encode(report)
    assert_same_fate(whole)
    for _ in range(20):
        body = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(12, len(body))  # behind the head, without which there is but one way
            if rng.random() < 0.8:
                body[at] = rng.choice((rng.randrange(256), rng.choice(HEADS)))
            elif rng.random() < 0.5:
                del body[at]
            else:
                body.insert(at, rng.randrange(256))
        assert_same_fate(bytes(body))


@settings(max_examples=examples(200))
@given(report=USUAL, data=st.data())
def test_reports_with_other_values_meet_the_same_fate_on_both_ways(report: Report, data: st.DataObject) -> None:
    envelope = msgpack.unpackb(encode(report))
    tables = [envelope["b"], envelope["b"]["sample"], *envelope["b"]["vms"]]
    for _ in range(data.draw(st.integers(1, 3))):
        table = data.draw(st.sampled_from(tables))
        wrong = data.draw(ROW_VALUES)
        if isinstance(table, dict):
            table[data.draw(st.sampled_from([*table]))] = wrong
        elif table and data.draw(st.booleans()):
            table[data.draw(st.integers(0, len(table) - 1))] = wrong
        elif data.draw(st.booleans()):
            table.append(wrong)
        else:
            del table[-1:]
    assert_same_fate(msgpack.packb(envelope, unicode_errors="surrogatepass"))


@settings(max_examples=examples(40))
@given(
    report=USUAL,
    seed=st.integers(0, 1 << 32),
    name=st.sampled_from(["node", "vms", "term", "events", "inventory", "other"]),
    plain=PLAIN,
)
def test_fields_twice_missing_and_unknown_meet_the_same_fate_on_both_ways(
    report: Report, seed: int, name: str, plain: Any
) -> None:
    rng = random.Random(seed)
    parts = [(key, value) for key, value in msgpack.unpackb(encode(report))["b"].items()]
    if rng.random() < 0.7:
        del parts[rng.randrange(len(parts))]
    parts.insert(rng.randint(0, len(parts)), (name, plain))
    rng.shuffle(parts)
    packed = b"".join(msgpack.packb(part) for pair in parts for part in pair)
    assert_same_fate(REPORT_HEAD + bytes([0x80 + len(parts)]) + packed)


EDGES = (
    *(2**n + d for n in (7, 8, 15, 16, 31, 32, 53, 63) for d in (-1, 0, 1)),
    *(-(2**n) + d for n in (5, 7, 15, 31, 53, 63) for d in (0, 1)),
    *(2**64 - 1, 0, -1, 1.0, -0.0, 1e-320, 2.0**53, 2.0**53 + 2, 1e300, -1e300, *map(float, ("nan", "inf", "-inf"))),
    *("", "a", "ä", "x" * 4096, "x" * 4097, "ä" * 4096, "ä" * 4097, "\ud800", "running", "RUNNING", "true", "1", "nan"),
    *(None, True, False, b"", b"a", [], {}, [1], {"a": 1}, [[]], [{}], msgpack.ExtType(5, b"a"), msgpack.Timestamp(1)),
)


@pytest.mark.full
@pytest.mark.parametrize("table", first(["report", "sample", "vm"]))
def test_every_field_of_a_report_takes_and_refuses_the_same_on_both_ways(table: str) -> None:
    status = VmStatus("a#0", VmState.RUNNING, 1, attempt=1, memory_mib=2048, vcpus=1, cpu_mhz=1200.0, cpu_time_s=2.5)
    usual = encode(Report("n1", "boot", 1, clock_s=5.0, term=7, sample=NodeSample(0.5), vms=(status, status)))
    envelope = msgpack.unpackb(usual)
    sample, vm = envelope["b"]["sample"], envelope["b"]["vms"][1]
    for row, value in ((sample, NodeSample()), (vm, status)):  # with what is not sent, too, being as it is by default
        row.extend(msgspec.structs.astuple(value)[len(row) :])
    fields_of_it = {"report": envelope["b"], "sample": sample, "vm": vm}[table]
    taken = 0
    for place in [*fields_of_it] if table == "report" else range(len(fields_of_it)):
        was = fields_of_it[place]
        for edge in EDGES:
            fields_of_it[place] = edge
            body = msgpack.packb(envelope, unicode_errors="surrogatepass")
            assert_same_fate(body)
            taken += len(fate(decode, body)) > 1
        fields_of_it[place] = was
    assert taken > 50


def test_a_field_twice_or_unknown_is_refused_beside_all_that_belong_there() -> None:
    parts = msgpack.unpackb(encode(Report("n1", "boot", 1, clock_s=5.0, term=7, sample=NodeSample(), vms=())))["b"]
    whole = b"".join(map(msgpack.packb, chain.from_iterable(parts.items())))
    assert_same_fate(REPORT_HEAD + b"\x87" + whole)
    for name, value in (*parts.items(), ("other", 1), ("", None), ("inventory", None)):
        more = msgpack.packb(name) + msgpack.packb(value)
        for body in (REPORT_HEAD + b"\x88" + whole + more, REPORT_HEAD + b"\x88" + more + whole):
            assert_same_fate(body)
            assert (len(fate(decode, body)) > 1) == (name == "inventory")


def test_deep_and_endless_reports_meet_the_same_fate_on_both_ways() -> None:
    head = REPORT_HEAD + b"\x87"
    node = {"name": "../x", "cores": 1, "core_mhz": 1.0, "memory_mib": 1}
    for rest in (
        b"",
        b"\xa5other" + b"\x91" * 50_000 + b"\xc0",
        b"\xa5other" + b"\x81\xa1a" * 20_000 + b"\xc0",
        b"\xa3vms" + b"\xdd\xff\xff\xff\xff" * 1000,
        b"\xa3vms" + b"\xdc\xff\xff" * 20_000,
        b"\xa4node\xdb\xff\xff\xff\xff",
        b"\xa9inventory" + msgpack.packb(node) * 10,
    ):
        assert_same_fate(head + rest)


Place = tuple[dict[str, Any], str, Any, bool]  # the map it is in, its name, its type, whether it has no default


def _fields_of(message: Message) -> tuple[dict[str, Any], list[Place]]:
    """The plain envelope of a message, and every field of every record in it, also those that are not sent."""
    envelope = copy.deepcopy(msgpack.unpackb(encode(message)))
    return envelope, list(_places(envelope["b"], type(message)))


def _places(plain: Any, hint: Any) -> Iterator[Place]:
    if hint is Any:
        return
    parts = [part for part in get_args(hint) if part is not NoneType]
    if isinstance(plain, dict) and isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        for name, required in declared(hint):
            yield plain, name, hints[name], required
            yield from _places(plain.get(name), hints[name])
    elif isinstance(plain, list) and is_row(hint):
        return  # arrays have no names: the tests of reports change those
    elif isinstance(plain, list):
        for item in plain:
            yield from _places(item, parts[0])
    elif parts and plain is not None:
        yield from _places(plain, parts[0])


def _wrong_for(hint: Any) -> list[Any]:
    """Values that no field of this type may hold."""
    parts = get_args(hint)
    if NoneType in parts:
        return [one for one in _wrong_for(next(part for part in parts if part is not NoneType)) if one is not None]
    if hint is bool:
        return [None, 0, 1, "true", "", 1.0, [], {}, [True]]
    if hint is int:
        return [None, True, False, "1", "", 1.0, 1e300, [], {}, 1 << 63, (1 << 64) - 1, b"1"]
    if hint is float:
        return [None, True, "1.0", "", [], {}, float("nan"), float("inf"), 1 << 63, b"1"]
    if hint is str:
        return [None, 1, True, 1.5, [], {}, "x" * 4097, b"x", ["x"]]
    if parts:
        return [None, 1, True, "", "abc", {}, 1.5, [[]], [None], [b"x"]]
    if issubclass(hint, Enum):
        return [None, 0, 1, True, "", "no-such-value", [], {}, [next(iter(hint)).value]]
    wrong: list[Any] = [None, 1, True, "", "abc", [[]], 1.5, {"no such field": 1}]
    all_optional = is_row(hint) and not any(required for _, required in declared(hint))
    return wrong if all_optional else [*wrong, []]  # an empty row is all defaults
