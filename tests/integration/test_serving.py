"""A web application on real parts: instances come and go with the load, backends, HAProxy and the controller are
killed; what clients lose is nothing, or few and counted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.harness import CLOCK
from tests.integration.private_broker import PrivateBroker
from tests.integration.serving_scene import PROBE, SCRAPE_S, Counted, Serving, nobody_lost, serving_scene

STEADY_PER_S = 10.0


@pytest.fixture(scope="module")
def site(broker: PrivateBroker) -> Iterator[Serving]:
    """Four nodes, on each of which an instance can answer about 24 requests a second."""
    with serving_scene(broker) as made:
        made.open_shop((1, 3))
        yield made


def test_instances_follow_the_load_and_nobody_is_lost(site: Serving) -> None:
    """And what the controller shows of it is what the clients saw."""
    site.wait_for(lambda: site.shop()["traffic"] is not None, what="measurements")
    answered, before = site.answered(), site.counted()
    low = site.load(STEADY_PER_S, 13.0)
    high = site.load(45.0, 5.0)
    site.wait_for(lambda: len(site.in_rotation()) >= 3, what="three instances")
    loads = [high.wait()]
    site.until_serving(1)
    loads.append(low.wait())
    assert all(nobody_lost(load) for load in loads), loads
    sent = sum(load.sent for load in loads)
    site.until_counted(before, Counted(sent, good=sent, refused=0))
    assert site.answered() - answered == sent
    mean_s = sum(load.mean_s * load.sent for load in loads) / sent
    CLOCK.sleep(2 * SCRAPE_S)
    seen = site.seen()
    assert (seen.sent, seen.served) == pytest.approx((sent, sent), rel=0.1)
    assert (seen.rejected, seen.queued) == (0, 0)
    assert seen.mean_s == pytest.approx(mean_s, rel=0.1)
    assert len(site.heard("web-instance-removed")) == len(site.heard("web-instance-added")) >= 2


def test_a_killed_instance_loses_little_and_is_replaced(site: Serving) -> None:
    """What may not be asked twice is lost with it, for as long as checks take at most; both sides count the same."""
    site.change_shop((2, 4))
    victim = min(site.until_serving(2))
    rate, before, killed = 2 * STEADY_PER_S, site.counted(), site.program(victim)
    load = site.load(rate, 3.0, method="POST")
    CLOCK.sleep(1.0)
    site.kill_program(victim)
    seen = load.wait()
    lost = seen.sent - seen.good
    assert lost == seen.refused <= rate * PROBE["period_s"] * PROBE["fall"]
    assert not seen.errors
    site.until_counted(before, Counted(seen.sent, seen.good, seen.refused))
    assert killed not in {site.program(vm) for vm in site.until_serving(2)}


@pytest.mark.full
def test_an_instance_that_is_ill_is_replaced_and_a_reload_loses_nobody(site: Serving) -> None:
    site.change_shop((2, 4))
    victim = min(site.until_serving(2))
    load = site.load(STEADY_PER_S, 6.0)
    site.proxy.reload()
    site.fall_ill(victim)
    site.until_heard("web-instance-replaced", victim)
    site.fall_ill(victim, ill=False)
    assert nobody_lost(load.wait())
    assert [event["subject"] for event in site.heard("web-instance-unhealthy")] == [victim]
    site.until_serving(2)


@pytest.mark.full
def test_requests_go_on_without_the_controller(site: Serving) -> None:
    """The next one finds everything as it is, and goes on."""
    site.change_shop((2, 4))
    serving = site.until_serving(2)
    (controller,) = site.lab.controllers.values()
    load = site.load(2 * STEADY_PER_S, 3.0)
    controller.kill()
    CLOCK.sleep(1.0)
    controller.start()
    assert nobody_lost(load.wait())
    site.until_heard("leading", count=2)
    site.wait_for(lambda: site.shop()["traffic"] is not None, what="measurements")
    assert site.until_serving(2) == serving
