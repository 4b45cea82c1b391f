"""What an operator does with the pages of docs/operate on three machines: which section on which machine, what is
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

INSTALL = (
    Step("install.md", "From the packages", NODES, ("apt-get install ./trimtab-agent",)),
    Step("install.md", "From the packages", ON_N1, ("apt-get install ./trimtab_", "install -m 640 -g trimtab-contr")),
)
BROKER_STEPS = (
    Step("broker.md", "1. Install it", ON_N1),
    Step("broker.md", "2. TLS", ON_N1),
    Step("broker.md", "3. Exchanges, queues, accounts", ON_N1),
)
LIBVIRT = (
    Step("first-node.md", "1. Libvirt", NODES),
    Step("first-node.md", "2. Moves between hosts", ON_N1, ("new=", "openssl req -x509", "for host in")),
    Step("first-node.md", "2. Moves between hosts", NODES, swaps={FIRST_HOST: f"{{node}}.{DOMAIN}"}),  # "on each node"
)
AGENTS = (
    Step("first-node.md", "3. The agent", ON_N1, ("cp -r", "editor", "for node in")),
    Step("first-node.md", "3. The agent", NODES),
)
LET_IN = (
    Step("first-node.md", "4. Let it in", ON_N1, ("trimtab nodes add",), {"n1": " ".join(NODES)}),
    Step("first-node.md", "4. Let it in", ON_N1),
)
JOB = (Step("jobs.md", "Jobs", ON_N1),)
DRAINS = {node: Step("drains.md", "Taking a node out", ON_N1, ("trimtab nodes",), {"n1": node}) for node in NODES}
POOLS = Step("existing-vms.md", "What a live migration needs", NODES)
ADOPT = Step("existing-vms.md", "What adopting does", ON_N1)
MIGRATE = Step("drains.md", "Taking a node out", ON_N1, ("trimtab vms migrate",), {"render-1#0": "legacy1"})
STEPS = (*INSTALL, *BROKER_STEPS, *LIBVIRT, *AGENTS, *LET_IN, *JOB, *DRAINS.values(), POOLS, ADOPT, MIGRATE)

START_CONTROLLER = Span("install.md", "systemctl enable --now trimtab-controller")
REACHES_LIBVIRT = Span("first-node.md", "runuser -u trimtab -- virsh -c qemu:///")
REACHES_OTHERS = Span("first-node.md", "runuser -u trimtab -- virsh -c qemu+tls")
APPROVE = Span("drains.md", "trimtab plan approve N")
UNDRAIN = Span("drains.md", "trimtab nodes undrain")
CONFIRM_OFF = Span("drains.md", "trimtab nodes confirm-off n1")
FORGET = Span("existing-vms.md", "trimtab vms forget")
DEFINITION = Span("existing-vms.md", "virsh dumpxml --inactive")
SPANS = (START_CONTROLLER, REACHES_LIBVIRT, REACHES_OTHERS, APPROVE, UNDRAIN, CONFIRM_OFF, FORGET, DEFINITION)

# What is changed with `editor`, by the name of the file. Guests are emulated.
EDITS: Mapping[str, Swaps] = {
    "controller.toml": {
        "BROKER": FIRST_HOST,
        "#[bus.tls]": "[bus.tls]",
        '#ca_file = "/etc/trimtab/ca.pem"': 'ca_file = "/etc/trimtab/broker-ca.pem"',
    },
    "render.xml": {'type="kvm"': 'type="qemu"', "Skylake-Server-IBRS": "qemu64"},
}

# Section, how commands begin ("" for all of them): why they are not done.
NOT_DONE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("install.md", "From the packages"): {
        "install -m 600 /dev/stdin": "broker.md puts the passwords in place",
        "install -m 640 -g trimtab /usr": "first-node.md does it",
        "trimtab-agent --check": "first-node.md does it",
    },
    ("install.md", "From the source"): {"": "the machines have the packages"},
    ("first-node.md", "1. Libvirt"): {"virt-host-validate": "a container has no KVM: guests are emulated"},
    ("first-node.md", "3. The agent"): {"journalctl": "it does not end by itself"},
    ("jobs.md", "Jobs"): {"trimtab events --follow": "it does not end by itself"},
    ("drains.md", "Taking a node out"): {"trimtab vms suspend": "a drain is done without it"},
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
