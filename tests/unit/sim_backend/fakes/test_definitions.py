"""Definitions of owners in the fake hypervisor: adoption writes its own element into the text, and release takes it
out again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.values.actions import Action, ActionKind
from shared.values.vms import VmSpec
from sim_backend.fakes.definitions import LABEL, MANAGED_SAVE, NVRAM, SNAPSHOTS, Belongings, labelled, unlabelled
from sim_backend.fakes.hypervisor import FakeHypervisor

VM = "pet"
PLAIN = "<domain>\n  <!-- theirs -->\n  <name>pet</name>\n  <os><nvram>/n/pet.fd</nvram></os>\n</domain>\n"
WITH_METADATA = PLAIN.replace("</name>", '</name><metadata><o:x xmlns:o="urn:o"/></metadata>')
ORDER = Action("a1", ActionKind.ADOPT, "fake", vm=VM, term=1, boot_id="boot-1", expires_at_s=1e9, generation=3)
SPEC = VmSpec(VM, 1, 1, memory_mib=256, vcpus=1, cpu_mhz=100.0, failover=True)


@pytest.mark.parametrize("text", [PLAIN, WITH_METADATA])
def test_a_label_goes_without_a_trace(text: str) -> None:
    once = labelled(text, 3)

    assert LABEL.format(3) in once
    assert unlabelled(once) == unlabelled(text) == text


@pytest.mark.parametrize("text", [PLAIN, WITH_METADATA])
def test_a_release_gives_back_the_text_that_was_adopted(text: str) -> None:
    node = FakeHypervisor()
    node.add_stranger(VM, memory_mib=256, now_s=0.0, shared=True, definition=text)

    node.begin(replace(ORDER, spec=SPEC), 0.0)
    adopted = node.domains[VM]
    assert (adopted.xml, adopted.definition) == (labelled(text, 3), text)

    node.begin(replace(ORDER, kind=ActionKind.RELEASE, generation=0, expects=3), 0.0)
    assert node.domains[VM].xml == text


def test_only_firmware_variables_go_along_and_only_from_a_host_of_their_own() -> None:
    kept = Belongings()
    kept.make(VM, "a", (NVRAM, SNAPSHOTS, MANAGED_SAVE), shared=False)
    assert kept.of(VM, "b") == set()

    kept.moves(VM, "a", "b")

    assert (kept.of(VM, "a"), kept.of(VM, "b")) == (set(), {NVRAM})


def test_what_all_hosts_see_stays_when_a_host_forgets_the_vm_and_saved_memory_is_used_up() -> None:
    kept = Belongings()
    kept.make(VM, "a", (NVRAM, MANAGED_SAVE), shared=True)
    assert kept.of(VM, "b") == {NVRAM}

    kept.comes_alive(VM, "a")
    assert kept.of(VM, "a") == {NVRAM}
    kept.undefined(VM, "a")

    assert kept.of(VM, "b") == {NVRAM}


def test_saved_memory_is_used_up_by_whoever_starts_the_vm() -> None:
    belongings = Belongings()
    belongings.comes_alive(VM, "n1")
    belongings.make(VM, "n1", (MANAGED_SAVE, NVRAM), shared=False)
    assert VM not in belongings.lived

    belongings.comes_alive(VM, "n1")

    assert (belongings.of(VM, "n1"), belongings.lived) == ({NVRAM}, {VM})
