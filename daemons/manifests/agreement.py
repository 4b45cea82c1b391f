"""The agreement of an environment as its owner writes it (examples/env-batch.toml, examples/env-web.toml), and how
Trimtab understands it. Every problem is reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar

from daemons.manifests import agreement_xml, assurance_tables, setup_tables
from daemons.manifests.job import JobName, Speed
from daemons.manifests.rules import Group, Unlike
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
    """The VM that is counted as one unit, with `granularity` `vm`. Instances may be smaller, not larger."""

    name: JobName
    """Name of the VM template. Example: `"render"`."""
    vcpus: Annotated[int, Range(1, 4096)]
    """Virtual CPUs of the VM. Example: `4`."""
    memory_mib: Annotated[int, Range(1, 1 << 40)]
    """Memory of the VM. Example: `8192`."""
    max_mhz: Speed
    """Most CPU that the VM can use. Example: `10400`."""


@dataclass(frozen=True, slots=True)
class SchedulingTable:
    """Placement of the environment's workloads on its nodes."""

    policy: str | None = None
    """Placement policy. Left out: the one of the environment type. Example: `"first-fit"`."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the placement policy."""


@dataclass(frozen=True, slots=True)
class BatchTable:
    """When a batch environment requests and releases units."""

    request_ratio: Ratio = 1.2
    """Ratio U: units are requested when the waiting demand, as a multiple of the current units, is above it."""
    release_ratio: Ratio = 0.2
    """Ratio V: units are released when the waiting demand, as a multiple of the current units, is below it."""
    elastic_factor: Annotated[float, Range(LEAST, 1.0 - LEAST)] = 0.5
    """Factor G: part of the idle units that is released at a time."""
    on_reclaim: OnReclaim = OnReclaim.SUSPEND
    """What happens to jobs whose units are reclaimed: `suspend` saves them to disk, `kill` restarts them later."""


@dataclass(frozen=True, slots=True)
class WebTable:
    """When a web environment adds and removes instances of an application."""

    add_above: Share = 0.8
    """Mean CPU use of all n instances above which one instance is added."""
    remove_below: Share = 0.8
    """One instance is removed when the mean CPU use is below this value times (n-1)/n."""
    over_s: Period = 20.0
    """Time over which CPU use is averaged."""


# --- how keys relate ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UpperBound:
    """`key` is at least 1, and at least `lower`."""

    key: str = "upper"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        upper, lower = values.get(self.key), values.get("lower")
        least = max(1, lower or 0)
        good = upper is None or lower is None or upper >= least
        return "" if good else f"at least {least}, or nothing"


@dataclass(frozen=True, slots=True)
class Registered:
    """`key` is the name of an installed policy of the role `role`."""

    key: str
    role: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        names = plugins.names(plugins.policy_group(self.role))
        return "" if values.get(self.key) in (None, *names) else f"one of {', '.join(names)}"


@dataclass(frozen=True, slots=True)
class ModelTakes:
    """The coordination policy accepts the bounds `lower` and `upper`."""

    key: str = "lower"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds or one of the keys is already wrong."""
        known = {"model", "lower", "upper"} <= {*values}
        if not known or Registered("model", "coordination").broken(values) or UpperBound().broken(values):
            return ""
        objection = plugins.find_policy("coordination", values["model"]).objection(values["lower"], values["upper"])
        return f"bounds that its model takes: {objection}" if objection else ""


@dataclass(frozen=True, slots=True)
class ParamsFit:
    """`key` has parameters that the placement policy knows."""

    key: str = "scheduling.params"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
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
    """A table `[template]` is given with `granularity` `vm`, and with no other."""

    key: str = "granularity"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        granularity, given = values.get(self.key), "template" not in values
        if granularity is Granularity.VM and not given:
            return "node, or a table [template] of the VM that is counted"
        return "vm, or no table [template]" if granularity is Granularity.NODE and given else ""


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """`key` is empty, or the same as `granularity`."""

    key: str = "resource"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        granularity, kind = values.get("granularity"), values.get(self.key)
        return (
            f"{granularity.value}, as granularity says, or nothing"
            if granularity and kind and kind != granularity
            else ""
        )


@dataclass(frozen=True, slots=True)
class VersionOfSystem:
    """`key` is given only with `os_type`."""

    key: str = "os_version"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        return "nothing, unless os_type is given" if values.get(self.key) and values.get("os_type") == "" else ""


@dataclass(frozen=True, slots=True)
class EachOnce:
    """`key` has at most 1000 names, each once."""

    key: str = "users"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        users = values.get(self.key, ())
        return "" if len({*users}) == len(users) <= USERS_MAX else f"at most {USERS_MAX} names, each once"


@dataclass(frozen=True, slots=True)
class LowerIsGuaranteed:
    """Beside tables `[[assurance.share]]`, `key` is at most the units of a first share of class `guaranteed`."""

    key: str = "lower"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
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
    """The specification of an environment for `trimtab env create`. A unit is a node, or a VM of the template."""

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
    """Name of the environment. Example: `"night"`."""
    owner: JobName
    """Owner of the environment: NAME of the broker account `owner.NAME`. Example: `"kim"`."""
    workload: str
    """Type of the environment: `batch`, `web`, or another installed type. Example: `"batch"`."""
    lower: Units
    """Guaranteed units: nobody but this environment and its partner may have them. Example: `2`."""
    upper: Units | None = None
    """Maximum: up to this many units, this environment and its partner have priority. Left out: no maximum. Example:
    `8`."""
    model: str = "fb"
    """Coordination policy that chooses the size of the environment: `fb`, `flb-nub`, `dedicated`, `on-demand`, or
    another installed policy."""
    relationship: Relationship = Relationship.AFFILIATED
    """Relationship of the owner to the provider. It is shown, and changes no decision."""
    granularity: Granularity = Granularity.NODE
    """What is counted and reassigned: whole nodes, or VMs of the template."""
    resource: Annotated[str, Form(f"({'|'.join(RESOURCES)})?", f"{' or '.join(RESOURCES)}, or nothing")] = ""
    """Kind of the resource. Empty: the same as `granularity`."""
    template: TemplateTable | None = None
    os_type: System = ""
    """Operating system that the environment's nodes must run, such as `debian`. Empty: any."""
    os_version: System = ""
    """Version of the operating system, such as `12`. Empty: any."""
    lease_s: Period = 3600.0
    """Reallocation interval: the period of the environment's timers."""
    coordinated_with: Group = ""
    """Partner environment of the other type of workload, with which units are shared. Empty: none."""
    shares: bool = False
    """Consent to a partner of another owner that names this environment, or that looks for a partner."""
    notice_s: Annotated[float, Range(0.0, 1e9)] = 3600.0
    """Time for which a consent still applies after it is withdrawn."""
    setup: setup_tables.SetupTable = field(default_factory=setup_tables.SetupTable)
    scheduling: SchedulingTable = field(default_factory=SchedulingTable)
    users: tuple[JobName, ...] = ()
    """Users that may submit jobs: NAMEs of broker accounts `user.NAME`."""
    batch: BatchTable | None = None
    web: WebTable | None = None
    terms: Mapping[str, Any] = field(default_factory=dict)
    """Terms of an installed environment type. `batch` and `web` have tables of their own."""
    assurance: assurance_tables.AssuranceTable | None = None


def read_agreement(path: Path) -> Agreement:
    """Read the agreement in a TOML file, or in an XML file (`.xml`).

    Raises `InvalidInput` with one problem for each thing that is wrong.
    """
    try:
        load = agreement_xml.read if path.suffix.lower() == ".xml" else toml.load
        return agreement_of(load(path, AgreementFile), path.parent)
    except InvalidValue as error:  # what no rule above has said
        raise InvalidInput(Problem(f"{path}: {error.field}", f"is {error.got!r}", error.expected)) from error


def agreement_of(file: AgreementFile, folder: Path = Path()) -> Agreement:
    """Return the agreement that a file in `folder` describes; InvalidValue for an invalid one, InvalidInput for a
    demand file that cannot be used."""
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
    """Return an agreement as it was understood, for people and for JSON: only the terms of its own side, with the name
    of its type as workload."""
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
