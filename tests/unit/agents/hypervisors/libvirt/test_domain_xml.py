"""The pure parts of the driver `libvirt`: templates, metadata, CPU, what errors mean, what changes are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.hypervisors.libvirt import domain_xml, metadata, templates
from agents.hypervisors.libvirt.capacity import Cpu
from agents.hypervisors.libvirt.changes import GRACE_S, Changes, ComparedDomains
from agents.hypervisors.libvirt.codes import Error, Lifecycle, Stopped
from agents.hypervisors.libvirt.domain_xml import Facts
from agents.hypervisors.libvirt.errors import Declined, Meaning, NoMemory, NotThere, Unavailable, mapped, meaning_of
from agents.hypervisors.libvirt.metadata import Meta
from agents.hypervisors.libvirt.statistics import Counters, ObservedDomain, counters_of
from shared.base.errors import InvalidInput, InvalidValue, ProgrammerError, TrimtabError
from shared.config.agent import LibvirtTemplate
from shared.values.actions import GuestChange
from shared.values.vms import VmSpec, VmState

GUEST = """<domain type="kvm"><name>old</name><uuid>1</uuid>
<memory unit="GiB">4</memory><currentMemory>1</currentMemory>
<vcpu current="1" cpuset="0">4</vcpu><metadata><x xmlns="other"/></metadata>
<description>{vm} is {workload} {instance} on {node}: {argument.0}</description>
<devices><disk type="file"><source file="{volume}"/><target dev="vda"/></disk></devices></domain>"""
SPEC = VmSpec(
    "render#3", 7, 2, memory_mib=96, vcpus=2, cpu_mhz=250.0, template="guest", arguments=("<a&'\">", "{node}")
)


def template(folder: Path, text: str = GUEST, **keys: object) -> templates.Template:
    file = folder / "guest.xml"
    file.write_text(text)
    fixed: dict[str, object] = {"volume": "base.qcow2"}
    made = LibvirtTemplate(str(file), **{**fixed, **keys})  # type: ignore[arg-type]
    return templates.read_all({"guest": made})["guest"]


def test_what_a_user_says_stays_text(tmp_path: Path) -> None:
    root = templates.filled(template(tmp_path), SPEC, "n1", "/pool/render#3.g7")
    again = domain_xml.parse(domain_xml.text_of(root))
    assert again.findtext("description") == "render#3 is render 3 on n1: <a&'\">"
    assert (again.findtext("name"), again.findtext("memory"), again.find("uuid")) == ("render#3", "96", None)
    assert again.find("memory").attrib == {"unit": "MiB"}  # type: ignore[union-attr]
    assert again.find("vcpu").attrib == {"cpuset": "0"}  # type: ignore[union-attr]
    assert domain_xml.facts_of(domain_xml.text_of(root)).disks == (domain_xml.Disk("/pool/render#3.g7", "vda"),)


def test_what_was_filled_in_is_not_filled_in_again(tmp_path: Path) -> None:
    spec = replace(SPEC, arguments=("{node}{volume}",))
    root = templates.filled(template(tmp_path), spec, "n1", "/x")
    assert root.findtext("description", "").endswith(": {node}{volume}")


def test_a_template_serves_many_vms(tmp_path: Path) -> None:
    made = template(tmp_path, first_address="192.0.2.250")
    templates.filled(made, SPEC, "n1", "/x")
    assert templates.filled(made, replace(SPEC, vm="b#0"), "n2", "/y").findtext("name") == "b#0"
    assert made.address_of("render#3") == "192.0.2.253"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<domain type='kvm'>", "no XML"),
        ("<network/>", "begins with <network>"),
        ("<domain><source file='{volume}'/></domain>", "has no type"),
        ("<domain type='kvm'/>", "has no place for base.qcow2"),
        ("<domain type='kvm'><x>{volume}{argument.01}</x></domain>", "has {argument.01}"),
        ("<domain type='kvm'><x>{volume}{memory}</x></domain>", "has {memory}"),
        ("<domain type='kvm'><x>{volume}{address}</x></domain>", "has {address}"),
        ("<!DOCTYPE d [<!ENTITY e 'x'>]><domain type='kvm'><x>{volume}&e;</x></domain>", "document type"),
    ],
)
def test_what_cannot_be_used_is_told_at_once(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as problem:
        template(tmp_path, text)
    assert said in str(problem.value)
    assert str(tmp_path / "guest.xml") in str(problem.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"libvirt.templates.g.file: /nowhere.xml cannot be used: No such file"):
        templates.read_all({"g": LibvirtTemplate("/nowhere.xml")})


@pytest.mark.parametrize(
    "spec",
    [
        replace(SPEC, arguments=()),
        replace(SPEC, arguments=("\x01",)),
        replace(SPEC, vm="a/b"),
        replace(SPEC, vm="a\x0b#0"),
    ],
)
def test_what_does_not_fit_a_vm_is_an_invalid_value(tmp_path: Path, spec: VmSpec) -> None:
    with pytest.raises(InvalidValue):
        templates.check(template(tmp_path), spec)


def test_addresses_end(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="an address from"):
        template(tmp_path, first_address="255.255.255.254").address_of("render#3")


METAS = st.builds(
    Meta,
    generation=st.integers(0, 1 << 40),
    attempt=st.integers(0, 1 << 40),
    cpu_mhz=st.floats(0, 1e9),
    cap_mhz=st.none() | st.floats(0, 1e9),
    template=st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF), max_size=20),
    node=st.sampled_from(["", "n1"]),
    saved=st.sampled_from(["", "a#0.g1.saved"]),
    over=st.sampled_from(["", "ended", "crashed"]),
    managed=st.booleans(),
    begun=st.booleans(),
)


@given(METAS)
def test_metadata_come_back_as_they_were(meta: Meta) -> None:
    root = domain_xml.parse("<domain><name>a#0</name></domain>")
    domain_xml.set_meta(root, meta)
    domain_xml.set_meta(root, meta)
    assert domain_xml.facts_of(domain_xml.text_of(root)).meta == meta
    bare = domain_xml.parse(metadata.text_of(meta))
    assert (bare.tag, metadata.read(bare)) == ("vm", meta)


@pytest.mark.parametrize("text", ['generation="x"', 'generation="-1"', 'generation="1" cpu_mhz="nan"', 'attempt="1"'])
def test_metadata_that_somebody_broke_are_none(text: str) -> None:
    assert metadata.read(domain_xml.parse(f"<vm {text}/>")) is None


def test_weights_are_in_proportion_and_within_bounds() -> None:
    old, new = Cpu(2_000.0), Cpu(2_000.0, cgroup=2)
    assert [old.shares(mhz) for mhz in (0.0, 1.0, 500.0, 1_500.0, 1e9)] == [2, 2, 500, 1_500, 262_144]
    assert [new.shares(mhz) for mhz in (0.0, 1_024.0, 3_072.0, 1e9)] == [1, 100, 300, 10_000]
    assert (old.worth_mhz(0, 1), new.worth_mhz(0, 1), new.worth_mhz(300, 2)) == (1_024.0, 1_024.0, 3_072.0)


def test_quotas_are_for_stated_maxima_and_parts_of_cores() -> None:
    whole, half = Cpu(2_000.0), Cpu(2_000.0, core_frac=0.5)
    assert [whole.quota_us(2, cap) for cap in (None, 4_000.0, 9_000.0, 1_000.0, 1e-6)] == [-1, -1, -1, 25_000, 1_000]
    assert [half.quota_us(2, cap) for cap in (None, 4_000.0, 1_000.0)] == [50_000, 50_000, 12_500]


class Said(Exception):
    """As the library's own."""

    def __init__(self, number: int | None, text: str = "text") -> None:
        super().__init__(text)
        self._number = number

    def get_error_code(self) -> int | None:
        return self._number


def test_every_error_means_something() -> None:
    for number in (None, *Error, 9_999):
        assert isinstance(mapped(Said(number), "do it"), TrimtabError)
    assert isinstance(mapped(Said(Error.NO_DOMAIN), "x"), NotThere)
    assert isinstance(mapped(Said(Error.ACCESS_DENIED), "x"), Declined)
    assert isinstance(mapped(Said(Error.INVALID_ARG), "x"), ProgrammerError)
    assert isinstance(mapped(Said(Error.INTERNAL_ERROR, "cannot set up guest memory"), "x"), NoMemory)
    broken = mapped(Said(Error.RPC), "x")
    assert isinstance(broken, Unavailable)
    assert broken.broken
    assert meaning_of(9_999) is Meaning.AGAIN
    assert str(mapped(Said(Error.XML_ERROR, "line\n one"), "define a#0")) == "define a#0: line one"


def test_counters_are_of_all_disks_and_cards() -> None:
    row = {"state.state": 1, "cpu.time": 2_500_000_000, "block.count": 2, "net.count": 1, "net.0.rx.bytes": 5}
    row |= {
        "block.0.rd.bytes": 10,
        "block.1.rd.bytes": 5,
        "block.1.wr.times": 500_000_000,
        "block.0.rd.times": 250_000_000,
    }
    assert counters_of(row) == Counters(2.5, 15, 0, 0.75, 5, 0)
    assert counters_of(row, 0.5) == Counters(5.0, 15, 0, 0.75, 5, 0)


# --- changes ----------------------------------------------------------------------------------------------------------

VM = "a#0"


def seen(state: VmState | None = VmState.RUNNING, node: str = "n1", **fields: object) -> ObservedDomain:
    facts = Facts(VM, "uuid", 96, vcpus=1, meta=Meta(generation=1, node=node))
    return ObservedDomain(facts, state, Counters(1.0), **fields)  # type: ignore[arg-type]


def knowing(before: ObservedDomain | None) -> Changes:
    changes = Changes("n1")
    changes.compare({} if before is None else {VM: before}, (), 0.0)
    return changes


def told(found: ComparedDomains) -> list[tuple[GuestChange, VmState]]:
    return [(change.change, change.status.state) for change, _before in found.tell]


@pytest.mark.parametrize(
    ("stopped", "change", "state"),
    [
        (Stopped.SHUTDOWN, GuestChange.ENDED, VmState.ENDED),
        (Stopped.CRASHED, GuestChange.VANISHED, VmState.CRASHED),
        (Stopped.DESTROYED, GuestChange.STOPPED, VmState.CRASHED),
        (Stopped.MIGRATED, GuestChange.LEFT, VmState.RUNNING),
    ],
)
def test_the_event_says_how_a_vm_went(stopped: Stopped, change: GuestChange, state: VmState) -> None:
    changes = knowing(seen())
    changes.happened(VM, Lifecycle.STOPPED, stopped)
    assert told(changes.compare({}, (), 1.0)) == [(change, state)]
    assert told(changes.compare({}, (), 2.0)) == []


def test_a_vm_that_is_gone_without_a_word_is_asked_after_before_it_is_lost() -> None:
    changes = knowing(seen())
    assert changes.compare({}, (), 1.0) == ComparedDomains()
    assert set(changes.missing) == {VM}
    assert changes.compare({}, (), 1.0 + GRACE_S).asked == [VM]
    assert changes.compare({}, (), 9.0) == ComparedDomains()
    changes.found_at(VM, "n2")
    found = changes.compare({}, (), 9.1)
    assert told(found) == [(GuestChange.LEFT, VmState.RUNNING)]
    assert "n2" in found.tell[0][0].detail
    assert not changes.missing


def test_one_that_no_node_has_has_vanished() -> None:
    changes = knowing(seen())
    changes.compare({}, (), 0.0)
    changes.compare({}, (), GRACE_S)
    changes.found_at(VM, "")
    assert told(changes.compare({}, (), 9.0)) == [(GuestChange.VANISHED, VmState.RUNNING)]


def test_an_event_that_comes_late_is_waited_for() -> None:
    changes = knowing(seen())
    changes.compare({}, (), 1.0)
    changes.happened(VM, Lifecycle.STOPPED, Stopped.MIGRATED)
    assert told(changes.compare({}, (), 1.5)) == [(GuestChange.LEFT, VmState.RUNNING)]


def test_a_definition_left_by_a_migration_is_no_vm() -> None:
    found = knowing(seen()).compare({VM: seen(None, left=True)}, (), 1.0)
    assert told(found) == [(GuestChange.LEFT, VmState.RUNNING)]
    assert len(found.left) == 1


@pytest.mark.parametrize("before", [None, seen(VmState.ENDED), seen(VmState.SUSPENDED)])
def test_who_comes_alive_was_started_by_somebody(before: ObservedDomain | None) -> None:
    assert told(knowing(before).compare({VM: seen()}, (), 1.0)) == [(GuestChange.STARTED, VmState.RUNNING)]


@pytest.mark.parametrize(("before", "node"), [(None, "n2"), (seen(VmState.INCOMING), "n1")])
def test_who_comes_from_another_node_has_arrived(before: ObservedDomain | None, node: str) -> None:
    found = knowing(before).compare({VM: seen(node=node)}, (), 1.0)
    assert told(found) == [(GuestChange.ARRIVED, VmState.RUNNING)]
    assert len(found.moved_in) == (node == "n2")


def test_what_we_do_is_no_change() -> None:
    changes = knowing(seen())
    assert changes.compare({}, {VM}, 1.0) == ComparedDomains()
    changes.settle(VM, None)
    assert changes.compare({}, (), 9.0) == ComparedDomains()
    changes.settle(VM, seen())
    assert changes.compare({VM: seen()}, (), 9.5) == ComparedDomains()


def test_who_is_not_ours_is_not_told_of() -> None:
    strange = replace(seen(), facts=Facts(VM, "uuid", 96, vcpus=1, meta=None))
    assert told(knowing(None).compare({VM: strange}, (), 1.0)) == []
    assert told(knowing(strange).compare({}, (), 9.0)) == []


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_template_that_others_can_change_is_refused(mode: int, tmp_path: Path) -> None:
    template(tmp_path)
    file = tmp_path / "guest.xml"
    file.chmod(mode)
    made = LibvirtTemplate(str(file), "base.qcow2")
    with pytest.raises(InvalidInput, match=f"can be changed by others .mode 0{mode:o}.*expected chmod go-w {file}"):
        templates.read_all({"guest": made})
    file.chmod(0o640)
    assert set(templates.read_all({"guest": made})) == {"guest"}
