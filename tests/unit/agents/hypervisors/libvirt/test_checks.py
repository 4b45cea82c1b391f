"""What the libvirt driver answers about starts by a definition from another node, and about the removal of one that
was started elsewhere, without asking libvirt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agents.hypervisors.answers import MET
from agents.hypervisors.libvirt.capacity import Features, abilities_of
from agents.hypervisors.libvirt.checks import NodeHeadroom, check
from agents.hypervisors.libvirt.domain_xml import Facts
from agents.hypervisors.libvirt.metadata import Meta
from agents.hypervisors.libvirt.migration_needs import Surroundings
from agents.hypervisors.libvirt.statistics import Counters, ObservedDomain
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.nodes import Ability
from shared.values.vms import VmSpec, VmState
from tests.support.domain_shapes import FRAGMENTS, domain

VM = "pet"
PARTS = {part.name: part for part in FRAGMENTS}
HERE = Surroundings("EPYC", is_local=lambda path: not path.startswith("/shared/"))
HAS = ("arch=x86_64", "machine=pc", "virt=qemu", "shared=/shared/volumes", "cpu=EPYC", "snapshots=none")
ROOM = NodeHeadroom("n1", 1_000, 1_000.0, has=HAS, here=HERE)
SPEC = VmSpec(VM, 2, 1, memory_mib=1, vcpus=1, cpu_mhz=1_500.0, failover=True)


def start(xml: str, spec: VmSpec = SPEC) -> Action:
    defined = replace(spec, definition=(xml[:10], xml[10:]))
    fields = {"vm": VM, "term": 1, "boot_id": "boot", "expires_at_s": 1e12}
    return Action("a1", ActionKind.START, "n1", generation=2, spec=defined, **fields)  # type: ignore[arg-type]


def seen(state: VmState, generation: int = 1, **fields: object) -> ObservedDomain:
    meta = replace(Meta(generation=generation), **fields)  # type: ignore[arg-type]
    return ObservedDomain(Facts(VM, "uuid", 256, vcpus=2, meta=meta), state, Counters())


PLAIN = domain(VM, [PARTS["shared-disk"]])


def test_what_fits_is_begun() -> None:
    assert check(start(PLAIN), None, ROOM) is None


def test_a_hypervisor_whose_features_are_not_known_starts_none() -> None:
    answer = check(start(PLAIN), None, replace(ROOM, fails_over=False))
    assert answer is not None
    assert answer[0] is Outcome.REFUSED


@pytest.mark.parametrize(
    ("here", "outcome"),
    [
        (seen(VmState.RUNNING, 2), MET[0]),
        (seen(VmState.CRASHED, 2), MET[0]),
        (seen(VmState.RUNNING), Outcome.ALREADY_THERE),
        (seen(VmState.CRASHED), Outcome.ALREADY_THERE),
        (seen(VmState.SUSPENDED), Outcome.ALREADY_THERE),
        (seen(VmState.ENDED, 2, managed=False), Outcome.ALREADY_THERE),
    ],
)
def test_what_is_here_is_left_alone(here: ObservedDomain, outcome: Outcome) -> None:
    answer = check(start(PLAIN), here, ROOM)
    assert answer is not None
    assert answer[0] is outcome


@pytest.mark.parametrize("name", ["passthrough", "host-model", "invtsc", "mirror", "serial-pty", "vnc"])
def test_what_a_live_migration_alone_needs_is_not_asked_for(name: str) -> None:
    other = replace(ROOM, here=replace(HERE, cpu="Skylake"))
    assert check(start(domain(VM, [PARTS[name]])), None, other) is None


@pytest.mark.parametrize("name", ["pci", "vnc-address", "local-disk", "rbd", "uefi", "vtpm", "kernel"])
def test_what_this_node_lacks_is_told(name: str) -> None:
    answer = check(start(domain(VM, [PARTS[name]])), None, ROOM)
    assert answer is not None
    assert (answer[0], len(answer[1]) > 10) == (Outcome.UNFIT, True)


def test_its_definition_says_how_much_it_takes() -> None:
    """Hugepages are no ordinary memory; an allotment is measured by the vCPUs of the definition."""
    assert check(start(domain(VM, [], memory_mib=1_000)), None, ROOM) is None
    for more in (start(domain(VM, [], memory_mib=1_001)), start(PLAIN, replace(SPEC, cpu_mhz=2_001.0))):
        answer = check(more, None, ROOM)
        assert answer is not None
        assert answer[0] in (Outcome.NO_ROOM, Outcome.REFUSED)
    paged = replace(ROOM, has=(*HAS, "hugepages=", "hugepages-2048=4096"))
    assert check(start(domain(VM, [PARTS["pages-2m"]], memory_mib=1_002)), None, paged) is None


def test_other_namespaces_are_for_metadata_alone() -> None:
    note = '<metadata><x xmlns="owner"><y/></x></metadata>'
    assert check(start(PLAIN.replace("<devices>", f"{note}<devices>")), None, ROOM) is None
    for place in ("<devices>", "</devices>", "</domain>"):
        answer = check(start(PLAIN.replace(place, f'<x xmlns="owner"/>{place}')), None, ROOM)
        assert answer is not None
        assert (answer[0], "another namespace" in answer[1]) == (Outcome.REFUSED, True)


LOG = "<serial type='pty'><log file='/var/log/x'/></serial>"
RUNS_ANYTHING = {
    "serial": "<serial type='file'><source path='/etc/cron.d/x'/></serial>",
    "log": LOG,
    "pipe": "<channel type='pipe'><source path='/run/x'/></channel>",
    "socket": "<channel type='unix'><source mode='bind' path='/etc/passwd'/></channel>",
    "script": "<interface type='ethernet'><script path='/shared/volumes/x'/></interface>",
    "sound": "<audio id='1' type='file' path='/srv/x.wav'/>",
    "way-up": "<disk type='file'><source file='/shared/volumes/../../etc/x'/><target dev='vda'/></disk>",
}


@pytest.mark.parametrize("name", RUNS_ANYTHING)
def test_a_definition_that_could_do_anything_to_this_host_is_refused(name: str) -> None:
    answer = check(start(PLAIN.replace("</devices>", f"{RUNS_ANYTHING[name]}</devices>")), None, ROOM)
    assert answer is not None
    assert (answer[0], answer[1].startswith("its definition: it has ")) == (Outcome.REFUSED, True), answer


@pytest.mark.parametrize("depth", [300, 100_000])
def test_a_definition_that_is_nested_without_end_is_refused(depth: int) -> None:
    """Given one that the interpreter cannot write, or could, then it is refused in words."""
    deep = f"<devices>{'<x>' * depth}{'</x>' * depth}"
    answer = check(start(PLAIN.replace("<devices>", deep)), None, ROOM)
    assert answer is not None
    assert (answer[0], "nested" in answer[1]) == (Outcome.REFUSED, True), answer


@pytest.mark.parametrize("file", ["/etc/shadow", "/shared/volumes/../../etc/shadow", "/shared/volumes/a"])
def test_a_file_that_firmware_hands_to_the_guest_is_one_that_nodes_share(file: str) -> None:
    given = f"<sysinfo type='fwcfg'><entry name='opt/x' file='{file}'/></sysinfo><devices>"
    answer = check(start(PLAIN.replace("<devices>", given)), None, ROOM)
    assert (answer is None) is (file == "/shared/volumes/a")


def undefine(digest: str = "", **facts: object) -> tuple[Outcome, str] | None:
    here = seen(VmState.ENDED)
    here = replace(here, facts=replace(here.facts, definition="d1", **facts))  # type: ignore[arg-type]
    fields = {"vm": VM, "term": 1, "boot_id": "boot", "expires_at_s": 1e12}
    return check(Action("a1", ActionKind.UNDEFINE, "n1", expects=1, digest=digest, **fields), here, ROOM)  # type: ignore[arg-type]


def test_what_lies_here_alone_or_was_edited_is_not_undefined() -> None:
    """Given a host that returns after a failover, then a newer definition stays, and so does one that names what is
    lost with it; without a digest, nothing is compared."""
    assert undefine() is undefine("d1") is None
    edited = undefine("d2")
    assert edited is not None
    assert (edited[0], "its definition here is not the one" in edited[1]) == (Outcome.REFUSED, True)
    for digest in ("", "d1"):
        kept = undefine(digest, host_files=("nvram=/pool/a.fd", "snapshots="))
        said = "its firmware variables /pool/a.fd lie on its host alone; its snapshots are known to its host alone"
        assert kept == (Outcome.REFUSED, said)


def test_metadata_of_ours_in_a_definition_count_for_nothing() -> None:
    """Given a definition that calls its local disk Trimtab's own, then the disk is local all the same."""
    own = '<t:vm xmlns:t="https://trimtab.dev/libvirt/1" generation="9" volume="own.qcow2" pool="p"/>'
    text = domain(VM, [PARTS["local-disk"]]).replace("<devices>", f"<metadata>{own}</metadata><devices>")
    answer = check(start(text), None, ROOM)
    assert answer is not None
    assert answer[0] is Outcome.UNFIT


def test_failover_needs_a_whole_hypervisor_that_migrates() -> None:
    assert abilities_of(Features(), has_images=False) == tuple(Ability)
    for features in (Features(paused=False), Features(migrate=False)):
        assert Ability.FAILOVER not in abilities_of(features, has_images=False)
    assert Ability.FAILOVER in abilities_of(Features(save=False), has_images=False)
