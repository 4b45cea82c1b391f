"""Whatever number libvirt raises, wherever: the operation is answered once, and the driver goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.hypervisors.libvirt.errors import mapped
from shared.base.errors import PermanentError, ProgrammerError, TransientError
from shared.values.actions import ActionKind, Outcome
from shared.values.vms import VmState
from sim_backend.conformance.hypervisor_bench import VM, Bench, settled
from sim_backend.fake_libvirt.codes import LAST_ERROR, error
from sim_backend.fake_libvirt.faults import Fault
from tests.conformance.fake_libvirt_rig import Fakes, Harness, fakes

ALL_CODES = (*range(LAST_ERROR + 1), LAST_ERROR + 1, 9_999)
CODES = (1, 2, 8, 38, 42, 55, 67, 88, 9_999)  # one for each meaning, and what QEMU's driver raises most
AT_ONCE = {"migrate": 0.0}
CALLS: dict[ActionKind, tuple[str, ...]] = {
    ActionKind.START: ("createXML", "defineXML", "createWithFlags", "setMetadata", "storagePoolLookupByName"),
    ActionKind.STOP: ("shutdownFlags", "destroyFlags", "undefineFlags", "delete"),
    ActionKind.PAUSE: ("suspend", "lookupByName"),
    ActionKind.SET_CPU: ("setSchedulerParametersFlags", "setMetadata"),
    ActionKind.SUSPEND: ("save", "createXML", "suspend", "setMetadata"),
    ActionKind.RESUME: ("restoreFlags", "saveImageGetXMLDesc", "setMetadata", "resume"),
    ActionKind.DISCARD_IMAGE: ("undefineFlags", "delete"),
    ActionKind.MIGRATE: ("migrateToURI3", "open", "XMLDesc"),
    ActionKind.RELEASE: ("setMetadata",),
}
ON_IMAGES = frozenset({ActionKind.RESUME, ActionKind.DISCARD_IMAGE})
TABLE = [(kind, call) for kind, calls in CALLS.items() for call in calls]


@pytest.mark.parametrize("code", ALL_CODES)
def test_every_number_means_one_of_our_errors(code: int) -> None:
    found = mapped(error(code, 10, "words"), "start job#0")
    assert isinstance(found, TransientError | PermanentError | ProgrammerError)
    assert "start job#0: " in str(found)
    assert "words" in str(found)


@pytest.mark.parametrize(("kind", "call"), TABLE, ids=lambda each: getattr(each, "value", each))
def test_an_error_is_answered(kind: ActionKind, call: str, tmp_path: Path) -> None:
    with fakes(tmp_path, durations_s=AT_ONCE) as made:
        for code in CODES:
            answered(made, kind, call, code)


@pytest.mark.full
@pytest.mark.parametrize(("kind", "call"), TABLE, ids=lambda each: getattr(each, "value", each))
def test_every_error_is_answered(kind: ActionKind, call: str, tmp_path: Path) -> None:
    with fakes(tmp_path, durations_s=AT_ONCE) as made:
        for code in ALL_CODES:
            answered(made, kind, call, code)


def answered(made: Fakes, kind: ActionKind, call: str, code: int) -> None:
    """One operation on a VM of its own, with an error in one of its calls."""
    bench = Bench(Harness(made))
    _prepare(bench, kind, call)
    before = settled(bench.find())
    made.cluster.fail(Fault(call, "raise", code, host=made.names[0]))
    answer = bench.do(kind, **_fields(bench, kind))
    happened = made.cluster.script.pending() == 0
    made.cluster.script.clear()
    assert happened, f"{call} is not called by {kind}"
    assert isinstance(answer.outcome, Outcome)
    if answer.outcome is not Outcome.OK:
        assert answer.detail or answer.outcome is Outcome.NO_SUCH_VM, (call, code)
        after = settled(bench.find())
        ended = kind is ActionKind.STOP and after is not None and after.state is VmState.ENDED  # it did as it was asked
        assert ended or after == before, (call, code, answer)
    _clean_up(bench, made)


def _prepare(bench: Bench, kind: ActionKind, call: str) -> None:
    if kind is not ActionKind.START:
        bench.start(paused=call == "destroyFlags")
    if kind in ON_IMAGES:
        bench.must(Outcome.OK, ActionKind.SUSPEND, expects=1, generation=1)


def _fields(bench: Bench, kind: ActionKind) -> dict[str, Any]:
    spec = bench.spec()
    fields: dict[ActionKind, dict[str, Any]] = {
        ActionKind.START: {"generation": 1, "spec": spec},
        ActionKind.RESUME: {"expects": 1, "generation": 2, "spec": spec},
        ActionKind.MIGRATE: {"expects": 1, "generation": 1, "to_node": bench.peer.inventory().name},
        ActionKind.SET_CPU: {"expects": 1, "generation": 1, "cpu_mhz": bench.cpu_mhz / 2},
    }
    return fields.get(kind, {"expects": 1, "generation": 1})


def _clean_up(bench: Bench, made: Fakes) -> None:
    """Whatever is left, on both nodes."""
    for node in (bench.node, bench.peer):
        found = bench.find(on=node)
        if found is None:
            continue
        if not found.managed:
            bench.must(Outcome.OK, ActionKind.ADOPT, on=node, generation=1, spec=bench.spec())
            found = bench.status(on=node)
        kind = ActionKind.DISCARD_IMAGE if found.state is VmState.SUSPENDED else ActionKind.STOP
        bench.must(Outcome.OK, kind, on=node, expects=found.generation)
    for name in made.names:
        assert made.drift(name).domain(VM) is None
