"""Half an hour of a cluster of real daemons, in which a month of decisions is made and everything happens to them."""

from __future__ import annotations

import os

import pytest

from tests.integration.private_broker import PrivateBroker
from tests.soak.running import FULL_S, report, run

SECONDS = float(os.environ.get("SOAK_S", FULL_S))


@pytest.mark.full
@pytest.mark.alone
def test_a_month_of_decisions_and_faults(broker: PrivateBroker) -> None:
    """No VM is live twice, no job is lost or done twice, all is well a minute after each fault; then memory grows by no
    more than the bound, descriptors and threads not at all, and no log says the same without end."""
    outcome = run(broker, SECONDS)

    print(report(outcome))
    assert outcome.wrong == []
    if SECONDS >= FULL_S:
        assert [one for one in outcome.left_out if "no time" in one] == []
