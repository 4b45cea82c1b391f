"""A decision's request as bytes and back, so that any decision is computed again elsewhere, bit for bit.

The bytes are gzip; inside are two lines of JSON: who saved it, and the request. Columns are written as they lie in
memory (little-endian, base64) with their type and length, so no float is rounded. Reading is strict: another schema, a
key too many or missing, a column of the wrong type or length, a row that points nowhere are refused with their place.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, NoReturn, TypeVar

import numpy as np

from daemons.decision.pipeline import DecideRequest
from daemons.values.settings import PolicyChoice
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.base.read_json import parse_json
from shared.base.type_hints import field_hints
from shared.policy_api.snapshot import (
    NOBODY,
    Bools,
    EnvironmentColumns,
    Floats,
    FlowColumns,
    InstanceColumns,
    Ints,
    LoadingColumns,
    MigrationColumns,
    NodeColumns,
    PowerColumns,
    PriceView,
    Snapshot,
    StageColumns,
    WebColumns,
    WindowView,
    WorkloadColumns,
    WorkloadState,
)
from shared.values.jobs import WEIGHT_MAX, Constraint, ConstraintKind
from shared.values.operation_costs import OperationCosts
from shared.values.web_app import ModelForm

SCHEMA = 11  # goes up with every change of what a snapshot or a request consists of
SCHEMAS = tuple(range(1, SCHEMA + 1))  # that can be read
BYTES_MAX = 64 << 20  # of the JSON in a file
NUMBER_MAX = 1e60  # of a finite number, so that products of several are finite too
PART_LENGTH = 4096  # characters of one string on the bus
PAGE_PARTS = 640  # strings of one page: 2.5 MiB
COMPRESSION_LEVEL = 3
_GZIP = 31  # zlib's word for the gzip form

Row = dict[str, Any]
T = TypeVar("T")
_TYPES: tuple[tuple[Any, str, str], ...] = ((Floats, "float64", "<f8"), (Ints, "int64", "<i8"), (Bools, "bool", "|b1"))
_COLUMNS = {
    "nodes": NodeColumns,
    "workloads": WorkloadColumns,
    "instances": InstanceColumns,
    "stages": StageColumns,
    "web": WebColumns,
    "flows": FlowColumns,
}
_LATER = {
    2: ("power", "windows", "prices"),
    3: ("environments",),
    4: ("loading",),
    5: ("migration",),
}  # parts by the schema that brought them
_LATER_ROWS: Mapping[int, Mapping[type, Mapping[str, bool | float]]] = {
    2: {WorkloadColumns: {"queued": False}},
    6: {WorkloadColumns: {"stays": False}},
    7: {FlowColumns: {"response_factor": 1.0}},
    9: {FlowColumns: {"expected_mhz": 0.0}},
}  # columns by the schema that brought them, and what they were before
_FORMER_NAMES: Mapping[int, Mapping[type, Mapping[str, str]]] = {
    10: {WorkloadColumns: {"needs": "required_labels", "separate": "spread"}},
}  # columns by the schema that renamed them
_LATER_OF_WINDOWS = {8: ("phase_rates", "phase_goes", "begun_s", "unavoidable")}  # what they lack has its default
_COSTS = ("start_s", "suspend_s_per_mib", "resume_s_per_mib", "migrate_s_per_mib")
_LEARNT_COSTS = {each.name for each in fields(OperationCosts)} - {*_COSTS}  # left out where they are 0
_CONSTRAINT = ("kind", "members", "nodes", "scope", "labels", "weight", "about")
_CONSTRAINT_LATER = {11: ("scope", "labels", "weight", "about")}  # by the schema that brought them
_NUMBERS = ("now_s", "cycle_s", "reporting_frac", "oldest_report_s", "vm_overhead_mib")


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved request, and in `header` who saved it: program (its version), term, at_s."""

    request: DecideRequest
    header: Mapping[str, Any]


# --- writing ---------------------------------------------------------------------------------------------------------


def to_bytes(request: DecideRequest) -> bytes:
    """Return the request, compressed. Raises `InvalidValue` for a policy's state or parameters that are not plain
    data."""
    snapshot = request.snapshot
    plain = {
        "schema": SCHEMA,
        "snapshot": {
            **{name: getattr(snapshot, name) for name in _NUMBERS},
            "at_cycle": snapshot.at_cycle,
            "costs": _costs_written(snapshot.costs),
            "constraints": [_constraint_written(each) for each in snapshot.constraints],
            **{name: _written(getattr(snapshot, name)) for name in _COLUMNS},
            "power": snapshot.power and _written(snapshot.power),
            "windows": [_written(window) for window in snapshot.windows],
            "prices": snapshot.prices and _written(snapshot.prices),
            "environments": snapshot.environments and _written(snapshot.environments),
            "loading": snapshot.loading and _written(snapshot.loading),
            "migration": snapshot.migration and _written(snapshot.migration),
        },
        "placement": _choice(request.placement, request.placement_state, "placement"),
        "provisioning": request.provisioning
        and _choice(request.provisioning, request.provisioning_state, "provisioning"),
    }
    if request.analysers:
        plain["analysers"] = _plain({name: dict(params) for name, params in request.analysers.items()}, "analysers")
    if request.scheduling:
        plain["scheduling"] = {
            name: {"policy": choice.name, "params": _plain(dict(choice.params), f"scheduling.{name}.params")}
            for name, choice in request.scheduling.items()
        }
    if request.provisioning is None and request.provisioning_state is not None:
        plain["provisioning_state"] = _plain(request.provisioning_state, "provisioning_state")
    return _packed(plain)


def header_bytes(header: Mapping[str, Any]) -> bytes:
    """Return the first line of a file, compressed; `to_bytes` follows it."""
    return _packed(dict(header))


def _packed(plain: Row) -> bytes:
    compress = zlib.compressobj(COMPRESSION_LEVEL, wbits=_GZIP)
    text = json.dumps(plain, separators=(",", ":")) + "\n"
    return compress.compress(text.encode("ascii")) + compress.flush()


def _constraint_written(constraint: Constraint) -> list[Any]:
    """Return the values in the order of `_CONSTRAINT`."""
    return [getattr(constraint, name) for name in _CONSTRAINT]


def _costs_written(costs: OperationCosts) -> Row:
    values = {each.name: getattr(costs, each.name) for each in fields(OperationCosts)}
    return {name: value for name, value in values.items() if value or name in _COSTS}


def _written(columns: Any) -> Row:
    return {name: _column(getattr(columns, name), hint) for name, hint in field_hints(type(columns)).items()}


def _column(value: Any, hint: Any) -> Any:
    for known, dtype, stored in _TYPES:
        if hint == known:
            raw = np.ascontiguousarray(value).astype(stored, casting="equiv", copy=False)
            wide = {"columns": raw.shape[1] if raw.ndim == 2 else list(raw.shape[1:])} if raw.ndim > 1 else {}
            return {"dtype": dtype, "length": len(raw), **wide, "data": base64.b64encode(raw.tobytes()).decode("ascii")}
    return value if hint in (int, float, str) else list(value)


def _choice(choice: PolicyChoice, state: Any, where: str) -> Row:
    return {
        "policy": choice.name,
        "params": _plain(dict(choice.params), f"{where}.params"),
        "state": _plain(state, f"{where}.state"),
    }


def _plain(value: Any, where: str) -> Any:
    """Return the value if JSON preserves it unchanged."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    raise InvalidValue(where, type(value).__name__, "nothing, numbers, strings, lists or string-keyed dicts")


# --- on the bus ------------------------------------------------------------------------------------------------------


class SnapshotPages:
    """The request that was saved last, in pages small enough for the bus, until the next one."""

    def __init__(self) -> None:
        self._id = ""
        self._pages: list[list[str]] = []

    def put(self, name: str, make: Callable[[], bytes]) -> None:
        """Keep what `make` returns, unless what is kept has that name: the same question may come twice."""
        if self._id != name:
            text = base64.b64encode(make()).decode("ascii")
            parts = [text[at : at + PART_LENGTH] for at in range(0, len(text), PART_LENGTH)]
            self._pages = [parts[at : at + PAGE_PARTS] for at in range(0, len(parts), PAGE_PARTS)]
            self._id = name

    def has(self, page: str) -> bool:
        """Return whether `page`, a name and a number with a dot between them, is stored here."""
        name, _, number = page.rpartition(".")
        return name == self._id and number.isascii() and number.isdigit() and int(number[:9]) < len(self._pages)

    def page(self, number: int) -> Row:
        """Return a page, with the data needed to request the others."""
        return {"id": self._id, "page": number, "pages": len(self._pages), "parts": self._pages[number]}


def from_parts(parts: Iterator[str]) -> bytes:
    """Return the bytes that these parts, page after page, form. Raises `InvalidInput`."""
    try:
        return base64.b64decode("".join(parts), validate=True)
    except (binascii.Error, ValueError) as problem:
        raise InvalidInput(Problem("snapshot", "the answer cannot be read", "base64")) from problem


# --- reading ---------------------------------------------------------------------------------------------------------


def from_bytes(body: bytes, name: str) -> Saved:
    """Return the saved request in a file of that name. Raises `InvalidInput` naming the first error."""
    header, plain = _lines(body, name)
    if plain.get("schema") not in SCHEMAS:
        by, known = f"program {header.get('program', 'unknown')}", " or ".join(map(str, SCHEMAS))
        raise InvalidInput(Problem(name, f"has schema {plain.get('schema')!r}, saved by {by}", f"schema {known}"))
    reader = _Reader(name)
    reader.header(header)
    try:
        return Saved(reader.request(plain), header)
    except InvalidValue as problem:
        raise InvalidInput(Problem(f"{name}: {problem.field}", f"is {problem.got!r}", problem.expected)) from problem


def _lines(body: bytes, name: str) -> tuple[Row, Row]:
    """Return the header and the request as JSON."""
    lines = []
    rest, room = body, BYTES_MAX
    for _ in range(2):
        expand = zlib.decompressobj(wbits=_GZIP)
        try:
            text = expand.decompress(rest, room)
        except zlib.error as problem:
            what = "is cut off" if not rest else "is no saved request"
            raise InvalidInput(Problem(name, what, "a file of `trimtab snapshot save`")) from problem
        if not expand.eof:
            what = "is too large" if expand.unconsumed_tail else "is cut off"
            raise InvalidInput(
                Problem(name, what, f"a whole file of `trimtab snapshot save`, at most {BYTES_MAX} bytes")
            )
        rest, room = expand.unused_data, room - len(text) + 1
        lines.append(_object(text, name))
    if rest:
        raise InvalidInput(Problem(name, f"has {len(rest)} bytes after its end", "a file of `trimtab snapshot save`"))
    return lines[0], lines[1]


def _object(text: bytes, name: str) -> Row:
    plain = parse_json(text, name)
    if not isinstance(plain, dict):
        raise InvalidInput(Problem(name, "holds no object", "a file of `trimtab snapshot save`"))
    return plain


class _Reader:
    """Reads one request; the first thing that is wrong ends it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def header(self, plain: Row) -> None:
        """Refuse a header that cannot be shown."""
        for key in ("at_s", "term"):
            if key in plain and not math.isfinite(number := self._number(f"header.{key}", plain[key])):
                self._fail(f"header.{key}", f"is {number}", "a finite number")
        try:
            json.dumps(plain, allow_nan=False)
        except ValueError:
            self._fail("header", "holds a number that is not finite", "finite numbers")

    def request(self, plain: Row) -> DecideRequest:
        """Return the whole request."""
        wanted = {"schema", "snapshot", "placement", "provisioning"}
        optional = {"provisioning_state", "analysers"} | ({"scheduling"} if plain["schema"] >= 3 else set())
        self._keys("request", plain, wanted | (plain.keys() & optional))
        placement, placement_state = self._choice("placement", plain["placement"])
        provisioning, provisioning_state = None, plain.get("provisioning_state")
        if plain["provisioning"] is not None:
            provisioning, provisioning_state = self._choice("provisioning", plain["provisioning"])
        snapshot = self._snapshot(plain["snapshot"], plain["schema"])
        analysers = self._typed("analysers", plain.get("analysers", {}), dict, "an object")
        for name, params in analysers.items():
            self._typed(f"analysers.{name}", params, dict, "an object")
        scheduling = self._scheduling(plain.get("scheduling", {}))
        return DecideRequest(
            snapshot, placement, placement_state, provisioning, provisioning_state, analysers, scheduling
        )

    def _fail(self, where: str, what: str, expected: str) -> NoReturn:
        raise InvalidInput(Problem(f"{self._name}: {where}", what, expected))

    def _keys(self, where: str, plain: Any, wanted: set[str]) -> None:
        if not isinstance(plain, dict):
            self._fail(where, "is no object", "an object")
        odd = sorted(plain.keys() ^ wanted)
        if odd:
            self._fail(f"{where}.{odd[0]}", "is missing" if odd[0] in wanted else "no such key", "each key once")

    def _typed(self, where: str, value: Any, kind: type | tuple[type, ...], words: str) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self._fail(where, f"is {str(value)[:60]}", words)
        return value

    def _choice(self, where: str, plain: Any) -> tuple[PolicyChoice, Any]:
        self._keys(where, plain, {"policy", "params", "state"})
        return self._policy(where, plain), plain["state"]

    def _policy(self, where: str, plain: Row) -> PolicyChoice:
        name = self._typed(f"{where}.policy", plain["policy"], str, "the name of a policy")
        return PolicyChoice(name, self._typed(f"{where}.params", plain["params"], dict, "an object"))

    def _scheduling(self, plain: Any) -> dict[str, PolicyChoice]:
        for name, each in self._typed("scheduling", plain, dict, "an object").items():
            self._keys(f"scheduling.{name}", each, {"policy", "params"})
        return {name: self._policy(f"scheduling.{name}", each) for name, each in plain.items()}

    # --- the snapshot -----------------------------------------------------------------------------------------------

    def _snapshot(self, plain: Any, schema: int) -> Snapshot:
        later = [part for since, parts in _LATER.items() if since <= schema for part in parts]
        self._keys("snapshot", plain, {*_NUMBERS, "at_cycle", "costs", "constraints", *_COLUMNS, *later})
        numbers: dict[str, Any] = {name: self._number(f"snapshot.{name}", plain[name]) for name in _NUMBERS}
        learnt = _LEARNT_COSTS & {*plain["costs"]} if isinstance(plain["costs"], dict) else set()
        self._keys("snapshot.costs", plain["costs"], {*_COSTS, *learnt})
        costs = {name: self._number(f"snapshot.costs.{name}", value) for name, value in plain["costs"].items()}
        columns: dict[str, Any] = {
            name: self._columns(f"snapshot.{name}", plain[name], kind, schema) for name, kind in _COLUMNS.items()
        }
        snapshot = Snapshot(
            **numbers,
            **columns,
            at_cycle=self._typed("snapshot.at_cycle", plain["at_cycle"], bool, "true or false"),
            costs=OperationCosts(**costs),
            constraints=self._constraints(plain["constraints"], schema),
            power=self._part("snapshot.power", plain.get("power"), PowerColumns),
            windows=self._windows(plain.get("windows", []), schema),
            prices=self._part("snapshot.prices", plain.get("prices"), PriceView),
            environments=self._part("snapshot.environments", plain.get("environments"), EnvironmentColumns),
            loading=self._part("snapshot.loading", plain.get("loading"), LoadingColumns),
            migration=self._part("snapshot.migration", plain.get("migration"), MigrationColumns),
        )
        self._rows(snapshot)
        return snapshot

    def _windows(self, plain: Any, schema: int) -> tuple[WindowView, ...]:
        rows = self._typed("snapshot.windows", plain, list, "a list")
        later = {name for since, names in _LATER_OF_WINDOWS.items() if since > schema for name in names}
        made = (self._part(f"snapshot.windows[{at}]", row, WindowView, later) for at, row in enumerate(rows))
        return tuple(window for window in made if window is not None)

    def _part(self, where: str, plain: Any, kind: type[T], later: Collection[str] = ()) -> T | None:
        """Return a value of numbers and columns, whose lengths may differ; `later`: fields it lacks."""
        if plain is None:
            return None
        hints = {name: hint for name, hint in field_hints(kind).items() if name not in later}
        self._keys(where, plain, set(hints))
        return kind(**{name: self._read(f"{where}.{name}", plain[name], hint) for name, hint in hints.items()})

    def _number(self, where: str, value: Any) -> float:
        found = self._typed(where, value, (int, float), "a number")
        if abs(found) > NUMBER_MAX and found not in (math.inf, -math.inf):
            self._fail(where, "is a larger number", f"a number up to {NUMBER_MAX:g}")
        return float(found)

    def _columns(self, where: str, plain: Any, kind: type[T], schema: int) -> T:
        for since, kinds in _FORMER_NAMES.items():
            if since > schema and type(plain) is dict:
                plain = {kinds.get(kind, {}).get(name, name): value for name, value in plain.items()}
        news = [each.get(kind, {}) for since, each in _LATER_ROWS.items() if since > schema]
        later = {name: value for rows in news for name, value in rows.items()}
        hints = {name: hint for name, hint in field_hints(kind).items() if name not in later}
        self._keys(where, plain, set(hints))
        made = {name: self._read(f"{where}.{name}", plain[name], hint) for name, hint in hints.items()}
        first, *others = made
        made |= {name: np.full(len(made[first]), value) for name, value in later.items()}
        for name in others:
            if len(made[name]) != len(made[first]):
                self._fail(f"{where}.{name}", f"has {len(made[name])} rows", f"{len(made[first])}, as {first} has")
        return kind(**made)

    def _read(self, where: str, plain: Any, hint: Any) -> Any:
        for known, dtype, stored in _TYPES:
            if hint == known:
                return self._array(where, plain, dtype, stored)
        if hint is float:
            return self._number(where, plain)
        if hint in (int, str):
            return self._typed(where, plain, hint, "a whole number" if hint is int else "a string")
        rows = self._typed(where, plain, list, "a list")
        if hint == tuple[str, ...]:
            return self._texts(where, rows)
        if hint == tuple[ModelForm, ...]:
            return tuple(ModelForm(each) for each in self._known(where, rows, [form.value for form in ModelForm]))
        return tuple(self._texts(where, self._typed(where, each, list, "lists of strings")) for each in rows)

    def _known(self, where: str, rows: list[Any], known: list[str]) -> list[str]:
        for each in rows:
            if each not in known:
                self._fail(where, f"has {str(each)[:60]}", "one of " + ", ".join(known))
        return rows

    def _texts(self, where: str, rows: list[Any]) -> tuple[str, ...]:
        return tuple(self._typed(where, each, str, "strings") for each in rows)

    def _array(self, where: str, plain: Any, dtype: str, stored: str) -> Any:
        wide = isinstance(plain, dict) and "columns" in plain
        self._keys(where, plain, {"dtype", "length", "data"} | ({"columns"} if wide else set()))
        if plain["dtype"] != dtype:
            self._fail(f"{where}.dtype", f"is {plain['dtype']!r}", dtype)
        try:
            raw = base64.b64decode(self._typed(f"{where}.data", plain["data"], str, "base64"), validate=True)
        except (binascii.Error, ValueError) as problem:
            raise InvalidInput(Problem(f"{self._name}: {where}.data", "is no base64", "base64")) from problem
        size = np.dtype(stored).itemsize
        columns = plain.get("columns", [])
        sizes = [plain["length"], *(columns if isinstance(columns, list) else [columns])]
        shape = [self._typed(where, each, int, "a count") for each in sizes]
        if min(shape) < 0 or max(shape) > BYTES_MAX or math.prod(shape) * size != len(raw):
            self._fail(where, f"holds {len(raw)} bytes", f"{' x '.join(map(str, shape))} values of {size} bytes")
        if dtype == "bool" and raw.strip(b"\x00\x01"):
            self._fail(where, "holds other bytes than 0 and 1", "truth values")
        values = np.frombuffer(raw, dtype=stored).astype(dtype).reshape(shape)
        if dtype == "float64" and np.any(np.isfinite(values) & (np.abs(values) > NUMBER_MAX)):
            self._fail(where, "has a larger number", f"numbers up to {NUMBER_MAX:g}")
        return values

    def _constraints(self, plain: Any, schema: int) -> tuple[Constraint, ...]:
        where = "snapshot.constraints"
        later = {name for since, names in _CONSTRAINT_LATER.items() if since > schema for name in names}
        names = [name for name in _CONSTRAINT if name not in later]
        made = []
        for row in self._typed(where, plain, list, "a list"):
            if (
                not isinstance(row, list)
                or len(row) != len(names)
                or row[0] not in [each.value for each in ConstraintKind]
            ):
                self._fail(where, f"has {str(row)[:60]}", f"[{', '.join(names)}]")
            values: dict[str, Any] = {"kind": ConstraintKind(row[0])}
            for name, value in zip(names[1:], row[1:], strict=True):
                if name == "weight":
                    values[name] = self._typed(where, value, int, "a whole number")
                elif name == "scope":
                    values[name] = self._typed(where, value, str, "a string")
                else:
                    values[name] = self._texts(where, self._typed(where, value, list, "a list"))
            if not 0 <= values.get("weight", 0) <= WEIGHT_MAX:
                self._fail(where, f"has weight {values['weight']}", f"0 to {WEIGHT_MAX}")
            made.append(Constraint(**values))
        return tuple(made)

    def _rows(self, snapshot: Snapshot) -> None:
        """Check that rows referenced by other rows exist."""
        work, nodes = snapshot.workloads, len(snapshot.nodes.names)
        self._within("workloads.state", work.state, 0, len(WorkloadState))
        self._within("workloads.instances", work.instances, 0, 1 << 32)
        self._within("workloads.stages", work.stages, 0, len(snapshot.stages.work_mcycles) + 1)
        self._within("workloads.first_stage", work.first_stage, 0, len(snapshot.stages.work_mcycles) + 1)
        self._within("workloads.app", work.app, -1, len(snapshot.web.names))
        self._within("instances.node", snapshot.instances.node, -1, nodes)
        self._within("flows.app", snapshot.flows.app, 0, len(snapshot.web.names))
        self._provisioning_rows(snapshot)
        self._environment_rows(snapshot)
        self._loading_rows(snapshot)
        held = np.where(work.state == WorkloadState.WAITING.value, 0, work.instances)
        placed = held > 0
        self._within("workloads.first_instance", work.first_instance[placed], 0, len(snapshot.instances.node))
        ends = (work.first_instance + held)[placed]
        self._within("workloads.instances", ends, 0, len(snapshot.instances.node) + 1)
        self._within("workloads.stages", work.first_stage + work.stages, 0, len(snapshot.stages.work_mcycles) + 1)

    def _provisioning_rows(self, snapshot: Snapshot) -> None:
        """Columns by node have as many rows as there are nodes; intervals have arrivals."""
        nodes, power = len(snapshot.nodes.names), snapshot.power
        if power is not None:
            for name in field_hints(PowerColumns):
                self._long(f"power.{name}", len(getattr(power, name)), nodes)
        for at, window in enumerate(snapshot.windows):
            self._long(f"windows[{at}].rate", len(window.rate), nodes)
            self._long(f"windows[{at}].taken", len(window.taken), nodes)
            self._long(f"windows[{at}].arrivals", window.arrivals.shape[0], window.intervals)
            self._long(f"windows[{at}].arrivals.shape", window.arrivals.ndim, 2)

    def _environment_rows(self, snapshot: Snapshot) -> None:
        """Check that every node and every workload has its environment."""
        held = snapshot.environments
        if held is None:
            return
        nodes, work, names = len(snapshot.nodes.names), len(snapshot.workloads.names), len(held.names)
        for name, rows in (("node", nodes), ("leaving", nodes), ("workload", work), ("quota", names)):
            self._long(f"environments.{name}", len(getattr(held, name)), rows)
        self._within("environments.node", held.node, NOBODY, names)
        self._within("environments.workload", held.workload, NOBODY, names)

    def _loading_rows(self, snapshot: Snapshot) -> None:
        """Check that every node has a type, each type has loadings of all workloads, and every workload has its
        nodes."""
        loading, migration = snapshot.loading, snapshot.migration
        if migration is not None:
            self._long("migration.of", len(migration.of), len(snapshot.workloads.names))
            self._long("migration.fits.shape", migration.fits.ndim, 2)
            self._long("migration.fits", migration.fits.shape[-1], len(snapshot.nodes.names))
            self._within("migration.of", migration.of, -1, len(migration.fits))
        if loading is None:
            return
        self._long("loading.node_type", len(loading.node_type), len(snapshot.nodes.names))
        types, resources = len(loading.parts), len(loading.resources)
        for name, wanted in (
            ("parts", (types, len(snapshot.workloads.names), resources)),
            ("servers", (types, resources)),
        ):
            shape = getattr(loading, name).shape
            if shape != wanted:
                self._fail(f"snapshot.loading.{name}", f"is {shape}", f"{wanted}")
        self._within("loading.node_type", loading.node_type, 0, types)

    def _long(self, where: str, got: int, wanted: int) -> None:
        if got != wanted:
            self._fail(f"snapshot.{where}", f"has {got} rows", f"{wanted}")

    def _within(self, where: str, rows: Ints, least: int, end: int) -> None:
        if len(rows) and not (least <= rows.min() and rows.max() < end):
            self._fail(f"snapshot.{where}", f"has rows from {rows.min()} to {rows.max()}", f"{least} to {end - 1}")
