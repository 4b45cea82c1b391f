"""The fake hypervisor keeps a definition that is not the one by which its VM was restarted elsewhere, as the driver of
libvirt does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.ports.effects import Operated
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.vms import VmSpec
from sim_backend.fakes.hypervisor import FakeHypervisor

VM = "pet"
ORDER = Action("a1", ActionKind.ADOPT, "fake", vm=VM, term=1, boot_id="boot-1", expires_at_s=1e9, generation=1)
SPEC = VmSpec(VM, 1, 1, memory_mib=256, vcpus=1, cpu_mhz=100.0, failover=True)


def do(node: FakeHypervisor, action: Action) -> Operated:
    node.begin(action, 0.0)
    (answer,) = [event for event in node.poll(0.0) if isinstance(event, Operated)]
    return answer


def shut_off(shared: bool) -> FakeHypervisor:
    """A node with an adopted VM that may fail over, and is off."""
    node = FakeHypervisor()
    node.add_stranger(VM, memory_mib=256, now_s=0.0, shared=shared)
    assert do(node, replace(ORDER, spec=SPEC)).outcome is Outcome.OK
    node.owner_stops(VM, 0.0)
    node.poll(0.0)
    return node


@pytest.mark.parametrize("digest", ["", "of another"])
@pytest.mark.parametrize("shared", [True, False])
def test_what_lies_here_alone_or_was_edited_stays(shared: bool, digest: str) -> None:
    node = shut_off(shared)
    undefine = replace(ORDER, kind=ActionKind.UNDEFINE, expects=1, generation=0)

    answer = do(node, replace(undefine, digest=digest))

    if shared and not digest:
        assert (answer.outcome, node.vms(0.0)) == (Outcome.OK, ())
        return
    assert (answer.outcome, len(node.vms(0.0))) == (Outcome.REFUSED, 1)
    assert ("disk" in answer.detail) is not shared
    if shared:
        assert do(node, replace(undefine, digest=node.vms(0.0)[0].definition)).outcome is Outcome.OK
