"""The agreement of an environment as its owner writes it (examples/env-batch.toml, examples/env-web.toml), and what
Trimtab understands by it. Every problem is told at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar

from daemons.manifests import agreement_xml, assurance_tables, setup_tables
from daemons.manifests.job import Group, JobName, Speed, Unlike
from daemons.manifests.type_rules import WORKLOAD, OfItsSide, RegisteredType, TermsFit, found_type, scheduling_of
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.config import toml
from shared.config.records import Above, AtLeast, Form, Range
from shared.ports import plugins
from shared.values.agreement import (
    RATIO_MAX,
    RESOURCES,
    UNITS_MAX,
    USERS_MAX,
    Agreement,
    BatchTerms,
    Granularity,
    OnReclaim,
    Relationship,
    VmTemplate,
    WebTerms,
    WorkloadType,
)
from shared.values.reservation import ServiceClass

LEAST = 1e-6  # stands for "above 0"

System = Annotated[str, Form(r"\S{0,128}", "at most 128 characters without spaces")]
Share = Annotated[float, Range(LEAST, 1.0)]
Ratio = Annotated[float, Range(0.0, RATIO_MAX)]
Period = Annotated[float, Range(1.0, 1e9)]
Units = Annotated[int, Range(0, UNITS_MAX)]


@dataclass(frozen=True, slots=True)
class TemplateTable:
    """The VM that an environment of granularity vm counts, see `shared.values.agreement.VmTemplate`."""

    name: JobName
    vcpus: Annotated[int, Range(1, 4096)]
    memory_mib: Annotated[int, Range(1, 1 << 40)]
    max_mhz: Speed


@dataclass(frozen=True, slots=True)
class SchedulingTable:
    """The placement policy of the environment's workloads (None: that of its type), and its parameters."""

    policy: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchTable:
    """How a batch environment asks for units and gives them back, see `shared.values.agreement.BatchTerms`."""

    request_ratio: Ratio = 1.2
    release_ratio: Ratio = 0.2
    elastic_factor: Annotated[float, Range(LEAST, 1.0 - LEAST)] = 0.5
    on_reclaim: OnReclaim = OnReclaim.SUSPEND


@dataclass(frozen=True, slots=True)
class WebTable:
    """When a web environment has one instance more or less, see `shared.values.agreement.WebTerms`."""

    add_above: Share = 0.8
    remove_below: Share = 0.8
    over_s: Period = 20.0


# --- how keys relate ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UpperBound:
    """The upper bound, if there is one, is at least one unit and not below the lower one."""

    key: str = "upper"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        upper, lower = values.get(self.key), values.get("lower")
        least = max(1, lower or 0)
        good = upper is None or lower is None or upper >= least
        return "" if good else f"at least {least}, or nothing"


@dataclass(frozen=True, slots=True)
class Registered:
    """The name under `key` is that of a policy of the role."""

    key: str
    role: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        names = plugins.names(plugins.policy_group(self.role))
        return "" if values.get(self.key) in (None, *names) else f"one of {', '.join(names)}"


@dataclass(frozen=True, slots=True)
class ModelTakes:
    """The coordination model has no objection to the bounds."""

    key: str = "lower"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so or one of the keys is wrong by itself."""
        known = {"model", "lower", "upper"} <= {*values}
        if not known or Registered("model", "coordination").broken(values) or UpperBound().broken(values):
            return ""
        objection = plugins.find_policy("coordination", values["model"]).objection(values["lower"], values["upper"])
        return f"bounds that its model takes: {objection}" if objection else ""


@dataclass(frozen=True, slots=True)
class ParamsFit:
    """The scheduling policy knows its parameters."""

    key: str = "scheduling.params"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        kind = found_type(values)
        policy = values.get("scheduling.policy") or (kind.scheduling.policy if kind and values.get(self.key) else None)
        if policy is None or self.key not in values or Registered("scheduling.policy", "placement").broken(values):
            return ""
        try:
            plugins.find_policy("placement", policy).check_params(values[self.key])
        except InvalidInput as error:
            return "; ".join(f"{problem}" for problem in error.problems)
        return ""


@dataclass(frozen=True, slots=True)
class OfVms:
    """What belongs to granularity vm is there with it, and only then."""

    key: str = "granularity"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        granularity, given = values.get(self.key), "template" not in values
        if granularity is Granularity.VM and not given:
            return "node, or a table [template] of the VM that is counted"
        return "vm, or no table [template]" if granularity is Granularity.NODE and given else ""


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """The kind of resource, where it is said, is the one that is counted."""

    key: str = "resource"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        granularity, kind = values.get("granularity"), values.get(self.key)
        return (
            f"{granularity.value}, as granularity says, or nothing"
            if granularity and kind and kind != granularity
            else ""
        )


@dataclass(frozen=True, slots=True)
class VersionOfSystem:
    """A version is one of a system."""

    key: str = "os_version"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        return "nothing, unless os_type is given" if values.get(self.key) and values.get("os_type") == "" else ""


@dataclass(frozen=True, slots=True)
class EachOnce:
    """No user is named twice, and there are not too many."""

    key: str = "users"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        users = values.get(self.key, ())
        return "" if len({*users}) == len(users) <= USERS_MAX else f"at most {USERS_MAX} names, each once"


@dataclass(frozen=True, slots=True)
class LowerIsGuaranteed:
    """What only it may have is no more than what it reserves of class guaranteed."""

    key: str = "lower"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        shares, lower = values.get("assurance.share"), values.get(self.key)
        if not shares or lower is None:
            return ""
        first = shares[0]
        most = first.units if first.class_ is ServiceClass.GUARANTEED else 0
        return (
            "" if most is None or lower <= most else f"at most {most}, the units of a first share of class guaranteed"
        )


@dataclass(frozen=True, slots=True)
class AgreementFile:
    """A file for `trimtab env create`, see `shared.values.agreement.Agreement`; units are nodes, or VMs of its
    template."""

    RULES: ClassVar[tuple[Any, ...]] = (
        UpperBound(),
        Registered("model", "coordination"),
        ModelTakes(),
        Registered("scheduling.policy", "placement"),
        ParamsFit(),
        RegisteredType(),
        OfItsSide("batch", WorkloadType.BATCH),
        OfItsSide("web", WorkloadType.WEB),
        TermsFit(),
        Above("batch.request_ratio", "batch.release_ratio"),
        AtLeast("web.add_above", "web.remove_below"),
        OfVms(),
        *setup_tables.RULES,
        *assurance_tables.RULES,
        LowerIsGuaranteed(),
        ResourceKind(),
        VersionOfSystem(),
        Unlike("coordinated_with", "name"),
        EachOnce(),
    )

    name: JobName
    owner: JobName
    workload: str
    lower: Units
    upper: Units | None = None
    model: str = "fb"
    relationship: Relationship = Relationship.AFFILIATED
    granularity: Granularity = Granularity.NODE
    resource: Annotated[str, Form(f"({'|'.join(RESOURCES)})?", f"{' or '.join(RESOURCES)}, or nothing")] = ""
    template: TemplateTable | None = None
    os_type: System = ""
    os_version: System = ""
    lease_s: Period = 3600.0
    coordinated_with: Group = ""
    shares: bool = False
    notice_s: Annotated[float, Range(0.0, 1e9)] = 3600.0
    setup: setup_tables.SetupTable = field(default_factory=setup_tables.SetupTable)
    scheduling: SchedulingTable = field(default_factory=SchedulingTable)
    users: tuple[JobName, ...] = ()
    batch: BatchTable | None = None
    web: WebTable | None = None
    terms: Mapping[str, Any] = field(default_factory=dict)
    assurance: assurance_tables.AssuranceTable | None = None


def read_agreement(path: Path) -> Agreement:
    """The agreement in a TOML file, or in an XML file (`.xml`).

    Raises `InvalidInput` with one problem for each thing that is wrong.
    """
    try:
        load = agreement_xml.read if path.suffix.lower() == ".xml" else toml.load
        return agreement_of(load(path, AgreementFile), path.parent)
    except InvalidValue as error:  # what no rule above has said
        raise InvalidInput(Problem(f"{path}: {error.field}", f"is {error.got!r}", error.expected)) from error


def agreement_of(file: AgreementFile, folder: Path = Path()) -> Agreement:
    """The agreement that a file in `folder` describes; InvalidValue for one that cannot be, InvalidInput for a file of
    demand that cannot be used."""
    kind = found_type({WORKLOAD: file.workload})
    if kind is None:
        raise InvalidValue(WORKLOAD, file.workload, "a type of environment that is installed")
    template, setup, batch, web = file.template, file.setup, file.batch or BatchTable(), file.web or WebTable()
    return Agreement(
        file.name,
        file.owner,
        kind.workload,
        lower=file.lower,
        upper=file.upper,
        model=file.model,
        relationship=file.relationship,
        granularity=file.granularity,
        resource=file.resource,
        template=VmTemplate(template.name, template.vcpus, template.memory_mib, template.max_mhz) if template else None,
        os_type=file.os_type,
        os_version=file.os_version,
        lease_s=file.lease_s,
        coordinated_with=file.coordinated_with,
        shares=file.shares,
        notice_s=file.notice_s,
        setup=setup_tables.setup_of(setup),
        scheduling=scheduling_of(kind, file.scheduling.policy, file.scheduling.params),
        users=file.users,
        batch=BatchTerms(batch.request_ratio, batch.release_ratio, batch.elastic_factor, batch.on_reclaim),
        web=WebTerms(web.add_above, web.remove_below, web.over_s),
        type="" if file.workload == kind.workload else file.workload,
        terms=file.terms,
        assurance=assurance_tables.terms_of(file.assurance, folder),
    )


def understood(agreement: Agreement) -> dict[str, Any]:
    """An agreement as it was understood, for people and for JSON: the terms of its own side alone, its workload by the
    name of its type."""
    values = {key: _plain(value) for key, value in asdict(agreement).items()}
    other = WorkloadType.WEB if agreement.workload is WorkloadType.BATCH else WorkloadType.BATCH
    del values[other.value], values["type"]
    return values | {WORKLOAD: agreement.type_name}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
