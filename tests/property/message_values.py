"""Strategies for valid messages and records, from their declared types."""

from __future__ import annotations

from dataclasses import MISSING, fields
from enum import Enum
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgpack  # type: ignore[import-untyped]
import msgspec
from hypothesis import strategies as st

from shared.protocol.operator_messages import CheckRules, CheckVmFit, SharedRules
from shared.values.agreement import (
    Agreement,
    AssuranceTerms,
    Granularity,
    Relationship,
    Scheduling,
    VmTemplate,
    WorkloadType,
)
from shared.values.health import Probe, ProbeKind
from shared.values.host_setup import Image, Package, RemoteFile, Setup, SetupPolicy
from shared.values.jobs import WEIGHT_MAX, Job, Preference, PreferenceKind, Rules, Stage
from shared.values.load_vector import Loading, StandardJob, StandardRun
from shared.values.migration_terms import MigrationBounds, MigrationMethod, MigrationTerms
from shared.values.new_vm import COPIES_MAX, NewVm
from shared.values.nodes import Node
from shared.values.operation_costs import OperationCosts
from shared.values.reservation import Calendar, ServiceClass, Share, SlotDemand
from shared.values.texts import TextForm, fits
from shared.values.vm_terms import (
    CLEARABLE,
    MOVES_PER_DAY_MAX,
    PAUSE_S_PER_DAY_MAX,
    OnShutdown,
    TermChanges,
    VmAutomation,
    VmTerms,
)
from shared.values.web_app import Distribution, Flow, FlowSample, ModelForm, Serving, WebApp

NAMES = st.text("abcXYZ019-_", min_size=1, max_size=12).filter(lambda name: name[0] != "-")
WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(0.001, 1e12)
LIMITS = st.floats(0.001, 60.0)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


PRINTABLE = st.characters(codec="utf-8", categories=("L", "N", "P", "S"))
_TURNING = "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
SHOWN = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters=_TURNING)
ALPHABETS = {
    TextForm.WORD: PRINTABLE,
    TextForm.LABEL: PRINTABLE | st.just(" "),
    TextForm.LINE: SHOWN,
    TextForm.PROSE: SHOWN | st.sampled_from("\n\t"),
}


def texts(form: TextForm) -> st.SearchStrategy[str]:
    """Texts of a form, the odd ones too."""
    return st.text(ALPHABETS[form], max_size=12).filter(lambda text: fits(text, form))


LABELS, LINES, PROSE = texts(TextForm.LABEL), texts(TextForm.LINE), texts(TextForm.PROSE)
MACS = st.sampled_from(("02:00:00:00:00:01", "00-1A-4b-00-00-ff", "020000000002"))
PLAIN = st.recursive(
    st.none() | st.booleans() | WHOLE | FINITE | PROSE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PROSE, inner, max_size=3),
    max_leaves=6,
)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | TEXT
    | st.binary(max_size=8)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=8)),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(TEXT | WHOLE | st.binary(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)

STAGES = st.builds(Stage, st.floats(0, 1e12), st.floats(10, 1e5), st.floats(0, 10), st.integers(0, 1 << 20))
RULES = st.builds(
    Rules,
    node_affinity=st.lists(st.sampled_from(["n1", "n2"]), max_size=2).map(tuple),
    node_anti_affinity=st.lists(st.sampled_from(["n3", "n4"]), max_size=2).map(tuple),
    affinity=st.sampled_from(["", "near"]),
    anti_affinity=st.sampled_from(["", "far"]),
    no_migration=st.booleans(),
    label_affinity=st.lists(st.sampled_from(["ssd", "rack=r1"]), max_size=2).map(tuple),
    label_anti_affinity=st.lists(st.sampled_from(["old", "slow"]), max_size=2).map(tuple),
    affinity_scope=st.sampled_from(["node", "zone"]),
    anti_affinity_scope=st.sampled_from(["node", "rack"]),
    vm_affinity=st.lists(st.sampled_from(["a", "b"]), max_size=2).map(tuple),
    vm_anti_affinity=st.lists(st.sampled_from(["c", "d"]), max_size=2).map(tuple),
    preferred=st.lists(
        st.builds(
            Preference,
            st.just(PreferenceKind.LABEL_AFFINITY),
            st.sampled_from(["ssd", "new"]),
            weight=st.integers(1, WEIGHT_MAX),
        ),
        max_size=2,
        unique_by=lambda one: one.target,
    ).map(tuple),
)
VM_TERMS = st.builds(
    VmTerms,
    running=st.booleans(),
    on_shutdown=st.sampled_from(OnShutdown),
    suspend=st.booleans(),
    automation=st.none() | st.sampled_from(VmAutomation),
    moves_per_day=st.none() | st.integers(1, MOVES_PER_DAY_MAX),
    pause_s_per_day=st.none() | st.floats(0.001, PAUSE_S_PER_DAY_MAX),
    post_copy=st.booleans(),
)
TERM_CHANGES = st.sets(st.sampled_from(CLEARABLE)).flatmap(
    lambda cleared: st.builds(
        TermChanges,
        on_shutdown=st.none() | st.sampled_from(OnShutdown),
        suspend=st.none() | st.booleans(),
        automation=st.none() if "automation" in cleared else st.none() | st.sampled_from(VmAutomation),
        moves_per_day=st.none() if "moves_per_day" in cleared else st.none() | st.integers(1, MOVES_PER_DAY_MAX),
        pause_s_per_day=st.none() if "pause_s_per_day" in cleared else st.none() | st.floats(0.001, 86_400.0),
        post_copy=st.none() | st.booleans(),
        failover=st.none() | st.booleans(),
        clear=st.just(tuple(sorted(cleared))),
    )
)
FLOW_PARTS: dict[str, st.SearchStrategy[Any]] = {
    "name": NAMES,
    "work_mcycles": st.none() | POSITIVE,
    "t_min_s": st.floats(0, 10),
    "model": st.sampled_from(ModelForm),
}
FLOWS = st.one_of(
    st.builds(Flow, mean_s=POSITIVE, **FLOW_PARTS),
    st.builds(Flow, percentile=st.floats(0.01, 0.99), percentile_s=POSITIVE, **FLOW_PARTS),
    st.builds(Flow, throughput_per_s=POSITIVE, **FLOW_PARTS),
)
COUNTS = st.integers(0, 1 << 62)
JOB_PARTS: dict[str, st.SearchStrategy[Any]] = {
    "name": NAMES,
    "stages": st.lists(STAGES, min_size=1, max_size=3).map(tuple),
    "submit_s": st.floats(0, 1e10),
    "desired_start_s": st.floats(0, 1e9),
    "instances": st.integers(1, 65_536),
    "vcpus": st.integers(1, 4096),
    "importance": POSITIVE,
    "spread": st.booleans(),
    "checkpoint_mcycles": st.floats(0, 1e12),
    "required_labels": st.lists(LABELS, max_size=3).map(tuple),
    "template": LINES,
    "job_class": st.just("") | NAMES,
    "rules": RULES,
    "resource_profile": st.sampled_from((Loading(), Loading((("cpu", 0.25), ("io", 0.5))))),
    "depends_on": st.lists(st.sampled_from(["p1", "p2", "p3"]), max_size=2, unique=True).map(tuple),
}
GOALS = st.none() | st.floats(1.1e9, 1e12)
NEW_VMS = st.builds(
    NewVm,
    st.integers(1, 4096),
    st.integers(1, 1 << 40),
    cpu_mhz=st.floats(0, 1e9),
    required_labels=st.lists(st.sampled_from(("ssd", "rack=r1")), max_size=2, unique=True).map(tuple),
    rules=RULES,
)
JOBS = st.one_of(st.builds(Job, goal_s=GOALS, **JOB_PARTS), st.builds(Job, queue=NAMES, **JOB_PARTS))


def tupled(value: Any) -> tuple[Any]:
    """Of one."""
    return (value,)


DIGESTS = st.sampled_from(("0" * 64, "0123456789abcdef" * 4))
FILES = st.builds(
    RemoteFile, st.sampled_from(("https://x.example/f", "file:///srv/f")), st.just("bin/f"), DIGESTS, st.booleans()
)
PORTS = st.integers(1, 65_535)
PROBES = st.one_of(
    st.builds(Probe, st.sampled_from((ProbeKind.HTTP, ProbeKind.TCP)), PORTS, st.just("/up"), period_s=LIMITS),
    st.builds(Probe, st.just(ProbeKind.COMMAND), command=NAMES, limit_s=LIMITS),
)
SERVINGS = st.builds(
    Serving, PORTS, PORTS, st.sampled_from(Distribution), st.none() | PORTS, st.none() | PORTS, POSITIVE
)
ARGUMENTS = st.lists(PROSE, max_size=3).map(tuple)
SETUPS = st.one_of(
    st.builds(Setup, st.just(SetupPolicy.EXEC), NAMES, LIMITS, st.booleans(), st.booleans()),
    st.builds(
        Setup,
        st.sampled_from((SetupPolicy.NOOP, SetupPolicy.WIPE)),
        st.just(""),
        LIMITS,
        packages=st.just(())
        | st.builds(Package, st.just("nginx"), DIGESTS, st.sampled_from(("", "1.22.1-9"))).map(tupled),
        files=st.just(()) | FILES.map(tupled),
        services=st.sampled_from(((), ("shop.service",), ("shop@1.service", "wiki.service"))),
    ),
    st.builds(Setup, st.just(SetupPolicy.IMAGE), images=st.builds(Image, st.just("a/b.qcow2"), DIGESTS).map(tupled)),
)
SHARES = st.sampled_from(
    (
        (Share(ServiceClass.GUARANTEED),),
        (Share(ServiceClass.GUARANTEED, 10), Share(ServiceClass.PREDICTABLE, 4, 0.99), Share(ServiceClass.BEST_EFFORT)),
    )
)
ASSURANCES = st.builds(
    AssuranceTerms,
    SHARES,
    st.sampled_from(((), (SlotDemand((0.25, 0.0, 0.75), 4), SlotDemand((1.0,))))),
    st.sampled_from((0.0, 1_800_000_000.0)),  # files tell minutes
    st.sampled_from((None, 1_900_000_020.0)),
    st.just(Calendar.HOUR_OF_DAY),
    st.just(43_200.0),
    st.sampled_from(("UTC", "Europe/Berlin")),
)
AGREEMENT_PARTS: dict[str, st.SearchStrategy[Any]] = {
    "name": NAMES,
    "owner": NAMES,
    "workload": st.sampled_from(WorkloadType),
    "lower": st.integers(0, 9),
    "upper": st.none() | st.integers(9, 65_536),
    "relationship": st.sampled_from(Relationship),
    "os_type": LABELS.map(lambda text: text or "linux"),
    "os_version": LABELS,
    "lease_s": POSITIVE,
    "coordinated_with": st.just("") | st.just("the-other"),
    "shares": st.booleans(),
    "notice_s": st.floats(0, 1e9),
    "scheduling": st.builds(Scheduling, NAMES, st.dictionaries(PROSE, PLAIN, max_size=3)),
    "users": st.lists(NAMES, max_size=3, unique=True).map(tuple),
    "type": st.just("") | NAMES,
    "terms": st.dictionaries(PROSE, PLAIN, max_size=3),
    "assurance": st.none() | ASSURANCES,
}
VMS = st.builds(VmTemplate, NAMES, st.integers(1, 4096), st.integers(1, 1 << 40), POSITIVE)
AGREEMENTS = st.one_of(
    st.builds(Agreement, setup=SETUPS, **AGREEMENT_PARTS),
    st.builds(Agreement, granularity=st.just(Granularity.VM), template=VMS, **AGREEMENT_PARTS),
)
LOADINGS = st.sampled_from((Loading(), Loading((("cpu", 0.25), ("io", 0.5))), Loading((("net", 1.0),))))
MIGRATION_BOUNDS = st.builds(MigrationBounds, POSITIVE, st.integers(1, 2_000_000), st.integers(0, 1_000_000))
# Values that check themselves need strategies that know their ranges.
KNOWN: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: WHOLE,
    float: FINITE,
    str: LINES,
    bytes: st.binary(max_size=12),
    Any: PLAIN,
    Stage: STAGES,
    Node: st.builds(
        Node,
        name=NAMES,
        cores=st.integers(1, 4096),
        core_mhz=POSITIVE,
        memory_mib=st.integers(100, 1 << 30),
        reserve_mib=st.integers(0, 100),
        labels=st.lists(LABELS, max_size=3).map(tuple),
        cpu_model=LABELS,
        node_type=LABELS,
        mac_addresses=st.lists(MACS, max_size=3).map(tuple),
        migration_bounds=MIGRATION_BOUNDS,
    ),
    Setup: SETUPS,
    Probe: PROBES,
    Loading: LOADINGS,
    StandardRun: st.builds(StandardRun, st.sampled_from(StandardJob), LIMITS, st.integers(1, 8)),
    Serving: SERVINGS,
    Agreement: AGREEMENTS,
    AssuranceTerms: ASSURANCES,
    Job: JOBS,
    Rules: RULES,
    VmTerms: VM_TERMS,
    TermChanges: TERM_CHANGES,
    NewVm: NEW_VMS,
    CheckRules: st.builds(
        CheckRules,
        texts(TextForm.WORD),
        st.lists(st.builds(SharedRules, RULES, st.lists(LINES, max_size=3).map(tuple)), max_size=2).map(tuple),
    ),
    CheckVmFit: st.builds(CheckVmFit, texts(TextForm.WORD), NEW_VMS, st.integers(1, COPIES_MAX)),
    Flow: FLOWS,
    FlowSample: st.builds(
        FlowSample,
        flow=LABELS,
        window_s=POSITIVE,
        offered=COUNTS,
        served=COUNTS,
        rejected=COUNTS,
        queued=COUNTS,
        mean_s=st.floats(0, 1e6),
        percentile_s=st.floats(0, 1e6),
    ),
    WebApp: st.builds(
        WebApp,
        name=NAMES,
        flows=st.lists(FLOWS, min_size=1, max_size=3, unique_by=lambda flow: flow.name).map(tuple),
        memory_mib=st.integers(0, 1 << 40),
        max_mhz=POSITIVE,
        min_instances=st.integers(0, 3),
        max_instances=st.integers(3, 65_536),
        vcpus=st.integers(1, 4096),
        importance=POSITIVE,
        required_labels=st.lists(LABELS, max_size=3).map(tuple),
        template=LINES,
        metrics_url=LINES,
        rules=RULES,
        arguments=ARGUMENTS,
        serving=st.none() | SERVINGS,
        probe=st.none() | PROBES,
    ),
    MigrationBounds: MIGRATION_BOUNDS,
    MigrationTerms: st.builds(
        MigrationTerms,
        st.sampled_from(MigrationMethod),
        st.integers(1, 255),
        st.integers(0, 1_000_000),
        st.integers(0, 2_000_000),
        st.floats(0, 1e9),
        st.booleans(),
    ),
    OperationCosts: st.builds(OperationCosts, *[st.floats(0, 1e6)] * 4),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Valid values of a type as it is declared in a dataclass."""
    if hint in KNOWN:
        return KNOWN[hint]
    if get_origin(hint) is Annotated:
        form = next((note for note in hint.__metadata__ if isinstance(note, TextForm)), None)
        return values(hint.__origin__) if form is None else texts(form)
    parts = get_args(hint)
    if NoneType in parts:
        return st.none() | values(next(part for part in parts if part is not NoneType))
    if get_origin(hint) is tuple and parts[-1] is not Ellipsis:
        return st.tuples(*map(values, parts))
    if parts:
        return st.lists(values(parts[0]), max_size=3).map(tuple)
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    hints = get_type_hints(hint, include_extras=True)
    return st.builds(hint, **{name: values(hints[name]) for name, _ in declared(hint)})


def declared(hint: Any) -> list[tuple[str, bool]]:
    """The name of each field of a record or row, and whether it has no default."""
    known = msgspec.structs.fields(hint) if is_row(hint) else fields(hint)
    missing = (MISSING, msgspec.NODEFAULT)
    return [(field.name, field.default in missing and field.default_factory in missing) for field in known]


def is_row(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)
