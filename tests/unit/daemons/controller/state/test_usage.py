"""What VMs of a node are taken to need of its CPU."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemons.controller.state.usage import fair_needs


def test_who_once_has_more_is_not_taken_to_need_more_on_a_node_without_cpu_to_spare() -> None:
    """Four use all of a node, four others what they are given: next to nothing."""
    needs = {f"v{at}": 2000.0 if at < 4 else 50.0 for at in range(8)}
    assert fair_needs(needs, 8000.0) == {f"v{at}": 1000.0 if at < 4 else 50.0 for at in range(8)}
    assert fair_needs(needs, 8200.0) == needs


@given(st.lists(st.floats(0.0, 1e6), max_size=8), st.floats(-1e6, 1e7))
def test_needs_fit_and_none_grows(needs: list[float], room_mhz: float) -> None:
    named = {str(at): mhz for at, mhz in enumerate(needs)}
    found = fair_needs(named, room_mhz)
    assert found.keys() == named.keys()
    assert all(0.0 <= found[name] <= mhz for name, mhz in named.items())
    assert math.fsum(found.values()) <= max(room_mhz, 0.0) * (1.0 + 1e-9) + 1e-9


def test_without_vms_there_is_nothing_to_share() -> None:
    assert fair_needs({}, 0.0) == {}
    assert fair_needs({"v": 5.0}, 0.0) == pytest.approx({"v": 0.0})
