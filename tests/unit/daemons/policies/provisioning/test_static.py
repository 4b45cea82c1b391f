"""Static provisioning: the first nodes, or all."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.decision.pipeline import no_tables
from daemons.policies.provisioning.static import Static
from shared.base.errors import InvalidInput
from shared.policy_api.decision import Reason, ReasonCode
from sim_backend.conformance.clusters import NodeRow, snapshot

SEEN = snapshot([NodeRow(name) for name in ("c", "a", "b")], [])


@pytest.mark.parametrize(
    ("params", "names"),
    [({}, "cab"), ({"nodes": None}, "cab"), ({"nodes": 2}, "ca"), ({"nodes": 0}, ""), ({"nodes": 9}, "cab")],
)
def test_first_nodes_in_row_order(params: dict[str, Any], names: str) -> None:
    """Named in row order, with the numbers in the reason."""
    decision, state = Static().decide(SEEN, None, params, no_tables)
    assert decision.in_service == tuple(names)
    assert decision.reason == Reason(ReasonCode.KEEP, (("in_service", float(len(names))), ("nodes", 3.0)))
    assert state is None


@pytest.mark.parametrize("params", [{"nodes": -1}, {"nodes": 1.5}, {"nodes": True}, {"nodes": "2"}, {"count": 2}])
def test_bad_parameters(params: dict[str, Any]) -> None:
    """Refused by `check_params` and by `decide`."""
    with pytest.raises(InvalidInput):
        Static().check_params(params)
    with pytest.raises(InvalidInput):
        Static().decide(SEEN, None, params, no_tables)
