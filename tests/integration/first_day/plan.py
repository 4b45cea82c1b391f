"""What an operator does with the pages of docs/how-to on three machines: which section on which machine, what is
written otherwise than it stands there, and what is not done, with the reason.

A command is named by how it begins. Each command in a block of a page that is used belongs to a step, or to `NOT_DONE`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.integration.first_day import pages
from tests.integration.first_day.machines import BROKER, DOMAIN, NODES
from tests.integration.first_day.pages import Command

Swaps = Mapping[str, str]

FIRST_HOST = f"{BROKER}.{DOMAIN}"


@dataclass(frozen=True, slots=True)
class Step:
    """Commands of a section, in its order, on machines one after another. `only`: how they begin (none: all that no
    other step takes). `swaps`: what is written for what stands there; `{node}` is the machine's name."""

    page: str
    section: str
    on: Sequence[str]
    only: tuple[str, ...] = ()
    swaps: Swaps = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """A command within the text of a page, by how it begins."""

    page: str
    begins: str


ON_N1 = (BROKER,)

# The sections of which several steps take something.
INSTALL_PAGE, PACKAGES = "Install", "Install the packages"
MIGRATION, AGENT = "2. Enable live migration", "3. Configure the agent"
DRAIN_PAGE, DRAIN = "Drain nodes and do maintenance", "Drain a node"

INSTALL = (
    Step("install.md", INSTALL_PAGE, NODES, ("apt-get install ./trimtab-agent",)),
    Step("install.md", INSTALL_PAGE, ON_N1, ("apt-get install ./trimtab_*.deb ./trimtab-controller",)),
    Step("install.md", PACKAGES, ON_N1, ("install -m 640 -g trimtab-contr", "editor /etc/trimtab/controller.toml")),
)
BROKER_STEPS = (
    Step("broker.md", "1. Install", ON_N1),
    Step("broker.md", "2. Enable TLS", ON_N1),
    Step("broker.md", "3. Create queues and accounts", ON_N1),
)
BROKER_IS_WHOLE = Step("broker.md", "Check", ON_N1)
LIBVIRT = (
    Step("first-node.md", "1. Prepare libvirt", NODES),
    Step("first-node.md", MIGRATION, ON_N1, ("new=", "openssl req -x509", "for host in")),
    Step("first-node.md", MIGRATION, NODES, swaps={FIRST_HOST: f"{{node}}.{DOMAIN}"}),  # "on each node"
)
REACHES_OTHERS = Step("first-node.md", MIGRATION, ("n2",), ("runuser",))
REACHES_LIBVIRT = Step("first-node.md", AGENT, NODES, ("runuser",))
START_CONTROLLER = Step("install.md", PACKAGES, ON_N1, ("trimtab-controller --check",))
AGENTS = (
    Step("first-node.md", AGENT, ON_N1, ("cp -r", "editor", "for node in")),
    Step("first-node.md", AGENT, NODES),
)
LET_IN = (
    Step("first-node.md", "4. Add the node", ON_N1, ("trimtab nodes add",), {"n1": " ".join(NODES)}),
    Step("first-node.md", "4. Add the node", ON_N1),
)
CHECKS = (
    Step("first-node.md", "Add a new host as a node", ON_N1, ("trimtab nodes show",)),
    Step("install.md", "Check", ON_N1),
)
JOB = (Step("jobs.md", "Submit a job", ON_N1),)
DRAINS = {
    node: Step("drains.md", DRAIN_PAGE, ON_N1, ("trimtab nodes drain", "trimtab nodes list"), {"n1": node})
    for node in NODES
}
UNDRAINS = {node: Step("drains.md", DRAIN_PAGE, ON_N1, ("trimtab nodes undrain",), {"n1": node}) for node in NODES}
POOLS = Step("existing-vms.md", "Adopt VMs", NODES)
ADOPT = Step("existing-vms.md", "Adopt existing VMs", ON_N1, (), {"db-*": "legacy*", " --dry-run": ""})
MIGRATE = Step("drains.md", DRAIN, ON_N1, ("trimtab vms migrate",), {"render-1#0": "legacy1"})
STEPS = (
    *INSTALL,
    *(*BROKER_STEPS, BROKER_IS_WHOLE),
    *(*LIBVIRT, REACHES_OTHERS),
    START_CONTROLLER,
    *(*AGENTS, REACHES_LIBVIRT, *LET_IN),
    *(*CHECKS, *JOB),
    *(*DRAINS.values(), *UNDRAINS.values()),
    *(POOLS, ADOPT, MIGRATE),
)

APPROVE = Span("drains.md", "trimtab plan approve N")
CONFIRM_OFF = Span("drains.md", "trimtab nodes confirm-off n1")
RELEASE = Span("existing-vms.md", "trimtab vms release")
DEFINITION = Span("existing-vms.md", "virsh dumpxml --inactive")
SPANS = (APPROVE, CONFIRM_OFF, RELEASE, DEFINITION)

# What is changed with `editor`, by the name of the file. Guests are emulated.
EDITS: Mapping[str, Swaps] = {
    "controller.toml": {
        "BROKER": FIRST_HOST,
        "#[bus.tls]": "[bus.tls]",
        '#ca_file = "/etc/trimtab/broker-ca.pem"': 'ca_file = "/etc/trimtab/broker-ca.pem"',
    },
    "render.xml": {'type="kvm"': 'type="qemu"', "Skylake-Server-IBRS": "qemu64"},
}

# Section, how commands begin ("" for all of them): why they are not done.
NOT_DONE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("install.md", INSTALL_PAGE): {"apt-get install ./trimtab_*.deb ./trimtab-portal": "no web pages on this day"},
    ("install.md", PACKAGES): {
        "install -m 600 /dev/stdin": "broker.md puts the passwords in place",
        "install -m 640 -g trimtab /usr": "first-node.md does it",
        "editor /etc/trimtab/agent.toml": "first-node.md does it",
        "trimtab-agent --check": "first-node.md does it",
        "install -m 640 -g trimtab-portal": "no web pages on this day",
        "editor /etc/trimtab-portal": "no web pages on this day",
        "trimtab-portal --check": "no web pages on this day",
    },
    ("install.md", "Install from source"): {"": "the machines have the packages"},
    ("broker.md", "Set up the broker"): {"": 'its section "Check" does it'},
    ("first-node.md", "1. Prepare libvirt"): {"virt-host-validate": "a container has no KVM: guests are emulated"},
    ("first-node.md", "Add a new host as a node"): {"trimtab nodes add": "its fourth section does it"},
    ("existing-vms.md", "Set terms"): {"": "one VM is adopted without"},
    ("drains.md", DRAIN): {"trimtab vms suspend": "a drain is done without it"},
}


def of_step(step: Step) -> list[Command]:
    """The commands of a step."""
    return [command for command in pages.commands(step.page) if step in _takers(command)]


def misplaced() -> Iterator[str]:
    """Yield what is wrong with this plan: commands of the pages in no place or in several, and places of commands that
    are not in the pages."""
    begins = {(*key, prefix) for key, reasons in NOT_DONE.items() for prefix in reasons}
    begins |= {(step.page, step.section, prefix) for step in STEPS for prefix in step.only or ("",)}
    for page in sorted({step.page for step in STEPS}):
        found = pages.commands(page)
        for command in found:
            places = [*_takers(command), *_reasons(command)]
            if not places:
                yield f"{page}, {command.section}: nobody does {command.text!r}"
        for of_page, section, prefix in sorted(begins):
            stands = any(one.section == section and one.text.startswith(prefix) for one in found)
            if of_page == page and not stands:
                yield f"{page}, {section}: no command begins with {prefix!r}"


def _takers(command: Command) -> list[Step]:
    """The steps that do a command."""
    own = [step for step in STEPS if (step.page, step.section) == (command.page, command.section)]
    named = [step for step in own if step.only and command.text.startswith(step.only)]
    if named or _reasons(command):
        return named
    return [step for step in own if not step.only]


def _reasons(command: Command) -> list[str]:
    """Why a command is not done."""
    reasons = NOT_DONE.get((command.page, command.section), {})
    return [reason for prefix, reason in reasons.items() if command.text.startswith(prefix)]
