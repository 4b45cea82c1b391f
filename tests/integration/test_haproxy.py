"""A real HAProxy under load: nobody is lost when instances come and go, losses on kills are few and counted, the excess
is turned away, and what is measured is what clients saw."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from threading import Thread
from urllib.request import urlopen

import pytest

from daemons.config.controller import BalancerKeys
from daemons.drivers.load_balancers.haproxy import Haproxy
from shared.base.errors import TransientError
from shared.ports.effects import Balance
from shared.values.health import Probe, ProbeKind
from shared.values.web_app import Distribution, FlowSample, Limits, Serving
from tests.integration.haproxy_scene import CLOCK, LIMIT_S, Load, Scene, backend, haproxy_scene, wait_until
from tests.ports import free_port

RATE = 100.0


@pytest.fixture
def scene() -> Iterator[Scene]:
    with haproxy_scene() as made:
        yield made


def process(scene: Scene) -> int:
    return scene.master().processes().worker


def nobody_lost(load: Load) -> bool:
    return load.good == load.sent == load.replies and not load.errors


def measured(scene: Scene, at_s: float) -> FlowSample:
    sample = scene.driver.measure("shop", at_s)
    assert sample is not None
    return sample


# --- instances come and go --------------------------------------------------------------------------------------------


def test_nobody_is_lost_when_instances_come_and_go(scene: Scene) -> None:
    """And HAProxy goes on as it is: nothing of it takes a reload."""
    for index in range(4):
        scene.site(f"127.0.0.{index + 1}", 0.03)
    scene.serve(backend(0), backend(1))
    before = process(scene)
    load = scene.load(RATE, 200)
    for table in ((0, 1, 2), (1, 2), (1, 2, 3), (3,), (0, 3)):
        leaving = {name: backend(name, drain=True) for name in range(4) if name not in table}
        now = [backend(index) for index in table]
        wait_until("those that leave are drained", lambda n=now, v=leaving: _drained(scene, n, list(v.values())))
        assert scene.tell(*now).ok
        CLOCK.sleep(0.2)
    assert nobody_lost(load.wait())
    assert process(scene) == before


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_lost_in_half_a_minute_of_changes_and_reloads(scene: Scene, seed: int) -> None:
    """Instances, weights, limits and addresses change at random, with reloads by applications that come and go."""
    draw = Random(seed)
    for index in range(6):
        scene.site(f"127.0.0.{index + 1}", 0.01 + 0.02 * (index % 3))
    other = replace(scene.serving, listen=free_port())
    serving = replace(scene.serving, distribution=draw.choice(list(Distribution)[:2]))
    scene.serve(*(backend(index) for index in range(6)), serving=serving)
    load = scene.load(RATE, int(30.0 * RATE))
    clients = [Client(scene.serving.listen) for _ in range(3)]
    until_s = CLOCK.monotonic_s() + 28.0
    while CLOCK.monotonic_s() < until_s:
        there = set(draw.sample(range(6), draw.randint(1, 6)))
        limits = Limits(draw.randint(20, 50), draw.randint(200, 400))
        for _ in range(draw.randint(1, 3)):
            table = [backend(index, index not in there) for index in range(6)]
            answer = scene.driver.set_backends(Balance("shop", tuple(table), serving, limits))
            assert answer.ok, answer.detail
            CLOCK.sleep(0.2)
        wait_until("they are drained", lambda n=there, m=limits: _gone(scene, n, serving, m))
        if draw.random() < 0.2:
            assert scene.tell(backend(0), app="wiki", serving=other).ok
            assert scene.driver.set_backends(Balance("wiki", ())).ok
        if draw.random() < 0.1:
            scene.reload()
    found = load.wait()
    assert [client.end() for client in clients] == [""] * 3
    assert nobody_lost(found), found


def _gone(scene: Scene, there: set[int], serving: Serving, limits: Limits) -> bool:
    """Whether all others are drained; then only these are told of."""
    table = [backend(index, index not in there) for index in range(6)]
    answer = scene.driver.set_backends(Balance("shop", tuple(table), serving, limits))
    if len(answer.drained) < 6 - len(there):
        return False
    only = tuple(backend(index) for index in sorted(there))
    return scene.driver.set_backends(Balance("shop", only, serving, limits)).ok


def _drained(scene: Scene, now: list[object], leaving: list[object]) -> bool:
    answer = scene.tell(*now, *leaving)  # type: ignore[arg-type]
    assert answer.ok
    return len(answer.drained) == len(leaving)


def test_clients_that_keep_their_connections_lose_nothing_by_a_reload_or_a_removal(scene: Scene) -> None:
    for index in range(2):
        scene.site(f"127.0.0.{index + 1}", 0.02)
    scene.serve(backend(0), backend(1))
    clients = [Client(scene.serving.listen) for _ in range(6)]
    CLOCK.sleep(0.3)
    scene.tell(backend(0), app="wiki", serving=replace(scene.serving, listen=free_port()))
    wait_until("it is drained", lambda: scene.tell(backend(0), backend(1, drain=True)).drained == ("shop#1",))
    scene.tell(backend(0))
    CLOCK.sleep(0.3)
    assert [client.end() for client in clients] == [""] * 6
    assert all(client.answers >= 10 for client in clients)
    assert all(client.connections <= 3 for client in clients)


class Client(Thread):
    """Asks again and again on one connection, and makes another when it is told that this one ends. What went wrong is
    in `failure`."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.answers, self.connections, self.failure, self._goes_on = 0, 0, "", True
        self._connection = HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        self.start()

    def run(self) -> None:
        try:
            while self._goes_on:
                self.connections += self._connection.sock is None
                self._connection.request("GET", "/")
                answer = self._connection.getresponse()
                assert (answer.status, answer.read()) == (200, b"ok")
                self.answers += 1
                CLOCK.sleep(0.01)
        except (AssertionError, HTTPException, OSError) as error:
            self.failure = repr(error)
        finally:
            self._connection.close()

    def end(self) -> str:
        self._goes_on = False
        self.join()
        return self.failure


def test_a_new_instance_gets_requests_when_it_is_healthy(scene: Scene) -> None:
    """In turn with the other: by connections, the one whose process is slower would get fewer."""
    scene.serving = replace(scene.serving, distribution=Distribution.ROUND_ROBIN)
    scene.site("127.0.0.1")
    scene.serve(backend(0))
    wait_until("the first one is up", lambda: scene.healthy_now("shop") == 1)
    assert scene.tell(backend(0), backend(1)).ok
    assert nobody_lost(scene.load(RATE, 50).wait())
    assert scene.healthy_now("shop") == 1
    scene.site("127.0.0.2")
    assert scene.tell(backend(1), backend(0, drain=True)).drained == ()  # it is not up yet: nobody else serves
    assert scene.serving_now("shop") == {"shop#0", "shop#1"}
    assert scene.tell(backend(0), backend(1)).ok
    wait_until("the second one is up", lambda: scene.healthy_now("shop") == 2)
    assert nobody_lost(scene.load(RATE, 50).wait())
    assert scene.answered("127.0.0.2") == pytest.approx(25, abs=1)


def test_the_first_instances_get_nothing_before_they_listen(scene: Scene) -> None:
    """A request that they all refused would have used up its tries at once."""
    for other in (scene.serving, replace(scene.serving, queue_limit_s=7.0)):  # added to HAProxy, and told at its reload
        assert scene.tell(serving=scene.serving).ok
        assert scene.tell(backend(0), backend(1), serving=other).ok
        assert scene.healthy_now("shop") == 0
        assert scene.load(RATE, 20).wait().refused == 20
        whole = scene.counted()
        assert (whole["wretr"], whole["wredis"]) == ("0", "0")
    for index in range(2):
        scene.site(f"127.0.0.{index + 1}")
        wait_until("it is up", lambda count=index + 1: scene.healthy_now("shop") == count)
        assert nobody_lost(scene.load(RATE, 20).wait())


def test_who_waits_keeps_its_place_when_an_instance_comes_that_does_not_listen_yet(scene: Scene) -> None:
    """It gets no request of the queue for a moment, which would come back and wait behind all others."""
    scene.site("127.0.0.1", 0.1)
    one_at_a_time = replace(scene.serving, instance_max=1, queue_max=100)
    scene.serve(backend(0), serving=one_at_a_time)
    load = scene.load(20.0, 40)
    CLOCK.sleep(0.5)
    for index in (1, 2, 3):
        assert scene.tell(*map(backend, range(index + 1)), serving=one_at_a_time).ok
        CLOCK.sleep(0.2)
    assert nobody_lost(load.wait())
    whole = scene.counted()
    assert (whole["wretr"], whole["wredis"], whole["econ"]) == ("0", "0", "0")


def test_an_instance_is_not_drained_while_a_process_before_the_reload_has_its_request(scene: Scene) -> None:
    scene.site("127.0.0.1", 1.2)
    scene.site("127.0.0.2")
    scene.serve(backend(0))
    found: list[int] = []
    client = Thread(target=lambda: found.append(_status(scene)))
    client.start()
    wait_until("its request is in progress", lambda: _sessions(scene) == 1)
    scene.tell(backend(0), backend(1))
    scene.tell(backend(1), app="wiki", serving=replace(scene.serving, listen=free_port()))
    assert scene.tell(backend(1), backend(0, drain=True)).drained == ()
    assert scene.serving_now("shop") == {"shop#1"}
    assert _sessions(scene) == 0
    assert not found
    client.join()
    assert found == [200]
    wait_until("it is drained", lambda: scene.tell(backend(1), backend(0, drain=True)).drained == ("shop#0",))


def _status(scene: Scene) -> int:
    with urlopen(f"http://127.0.0.1:{scene.serving.listen}/", timeout=LIMIT_S) as page:
        return int(page.status)


def _sessions(scene: Scene, instance: str = "") -> int:
    """Requests in progress at one instance ("": at all)."""
    rows = scene.beside().ask(["show stat trimtab-shop 4 -1"]).splitlines()
    return sum(int(row.split(",")[4]) for row in rows if row.startswith(f"trimtab-shop,{instance}"))


def test_shares_follow_the_distribution(scene: Scene) -> None:
    for index in range(2):
        scene.site(f"127.0.0.{index + 1}")
    weighted = replace(scene.serving, distribution=Distribution.WEIGHTED)
    scene.serve(backend(0, weight=0.5), backend(1, weight=1.5), serving=weighted)
    assert nobody_lost(scene.load(RATE, 40).wait())
    shares = [scene.answered(address) for address in scene.sites]
    assert shares == pytest.approx([10, 30], abs=1)
    scene.tell(backend(0), backend(1), serving=replace(scene.serving, distribution=Distribution.SOURCE))
    assert nobody_lost(scene.load(RATE, 20).wait())
    more = [scene.answered(address) - share for address, share in zip(scene.sites, shares, strict=True)]
    assert sorted(more) == [0, 20]


# --- faults -----------------------------------------------------------------------------------------------------------


def test_a_killed_instance_loses_only_what_it_had_begun_and_both_sides_count_it(scene: Scene) -> None:
    """What may be asked twice is asked again; what may not is lost, and counted as turned away."""
    for index in range(3):
        scene.site(f"127.0.0.{index + 1}", 0.05)
    scene.serve(backend(0), backend(1), backend(2))
    assert scene.driver.measure("shop", 0.0) is None
    for at_s, method, number in ((1.0, "GET", 0), (2.0, "POST", 1)):
        load = scene.load(RATE, 100, method=method)
        wait_until("it has begun requests", lambda instance=f"shop.{number}": _sessions(scene, instance) > 1)
        scene.sites[f"127.0.0.{number + 1}"].kill()
        seen = load.wait()
        counted = measured(scene, at_s)
        lost = seen.sent - seen.good
        assert (counted.offered, counted.served, counted.rejected) == (100, seen.good, seen.refused)
        assert lost == seen.refused <= (0 if method == "GET" else 15)
        wait_until("the killed one is down", lambda left=3 - at_s: scene.healthy_now("shop") == left)
    assert lost > 0


def test_haproxy_that_is_killed_comes_back_with_the_instances_of_now_and_registration_catches_up(scene: Scene) -> None:
    scene.site("")
    scene.serve(backend(0), backend(1))
    scene.tell(backend(1), backend(2))
    scene.stop()
    with pytest.raises(TransientError, match="runtime"):
        scene.tell(backend(2), backend(3))
    scene.start()
    assert scene.serving_now("shop") == {"shop#1", "shop#2"}
    assert nobody_lost(scene.load(RATE, 30).wait())
    assert scene.tell(backend(2), backend(3)).ok
    assert scene.serving_now("shop") == {"shop#2", "shop#3"}
    scene.reload()
    assert scene.serving_now("shop") == {"shop#2", "shop#3"}


def test_what_somebody_changed_by_hand_is_put_right(scene: Scene) -> None:
    scene.site("")
    scene.serve(backend(0), backend(1))
    server = "trimtab-shop/shop"
    scene.beside().ask([f"set server {server}.0 state maint", f"del server {server}.0", f"set weight {server}.1 0"])
    scene.beside().ask([f"set server {server}.1 state drain", f"set server {server}.1 addr 127.0.0.9 port 1"])
    assert scene.tell(backend(0), backend(1)).ok
    assert scene.serving_now("shop") == {"shop#0", "shop#1"}
    assert nobody_lost(scene.load(RATE, 20).wait())


def test_without_its_control_socket_requests_are_served_as_before(scene: Scene) -> None:
    scene.site("")
    scene.serve(backend(0), backend(1))
    file = Path(scene.keys.folder, "trimtab-shop.cfg").read_text()
    away = Path(scene.keys.socket).rename(scene.folder / "away.sock")
    load = scene.load(RATE, 50)
    for _ in range(3):
        with pytest.raises(TransientError, match="does not answer"):
            scene.tell(backend(0))
        with pytest.raises(TransientError):
            scene.driver.measure("shop", 1.0)
    assert nobody_lost(load.wait())
    assert scene.serving_now("shop") == {"shop#0", "shop#1"}
    assert Path(scene.keys.folder, "trimtab-shop.cfg").read_text() == file
    away.rename(scene.keys.socket)
    assert scene.tell(backend(0)).ok
    assert scene.serving_now("shop") == {"shop#0"}


def test_without_the_master_nothing_new_is_taken_and_nothing_lost(scene: Scene) -> None:
    scene.site("")
    scene.serve(backend(0))
    Path(scene.keys.master_socket).unlink()
    with pytest.raises(TransientError, match="master"):
        scene.tell(backend(0), app="wiki", serving=replace(scene.serving, listen=free_port()))
    assert os.listdir(scene.keys.folder) == ["trimtab-shop.cfg"]
    assert scene.tell(backend(0), backend(1)).ok
    assert nobody_lost(scene.load(RATE, 20).wait())


# --- overload ---------------------------------------------------------------------------------------------------------


def test_the_excess_waits_in_a_bounded_queue_and_the_rest_is_turned_away(scene: Scene) -> None:
    """Two at a time for 0.1 s each: 20 a second. Then twice as many, without a reload."""
    scene.site("127.0.0.1", 0.1)
    order = Balance("shop", (backend(0),), scene.serving, Limits(2, 4))
    assert scene.driver.set_backends(order).ok
    wait_until("it is up", lambda: scene.healthy_now("shop") == 1)
    before = process(scene)
    assert scene.driver.measure("shop", 0.0) is None
    for at_s, limits in ((1.0, Limits(2, 4)), (2.0, Limits(4, 8))):
        assert scene.driver.set_backends(replace(order, limits=limits)).ok
        assert limits.instance_max is not None
        assert limits.queue_max is not None
        seen = scene.load(RATE, 100).wait()
        counted = measured(scene, at_s)
        due = limits.instance_max * (1.0 / 0.1 + 1) + limits.queue_max
        assert 0.6 * due <= seen.good <= due + 1
        assert seen.good + seen.refused == seen.sent == 100
        assert (counted.offered, counted.served, counted.rejected) == (100, seen.good, seen.refused)
    assert process(scene) == before


def test_who_waits_too_long_is_turned_away(scene: Scene) -> None:
    scene.site("127.0.0.1", 0.4)
    scene.serve(backend(0), serving=replace(scene.serving, instance_max=1, queue_max=100, queue_limit_s=0.2))
    assert scene.driver.measure("shop", 0.0) is None
    load = scene.load(50.0, 20)
    CLOCK.sleep(0.15)
    assert measured(scene, 0.5).queued > 0
    seen = load.wait()
    counted = measured(scene, 1.0)
    assert seen.refused >= 15
    assert counted.rejected == seen.refused
    assert counted.queued == 0


def test_what_is_measured_is_what_clients_saw(scene: Scene) -> None:
    """Also in a window right after one with another load; answers of 500 are an instance's own.

    HAProxy's time lies within the clients' own, which also holds what a busy machine adds between the two of them.
    """
    scene.site("127.0.0.1", 0.1)
    scene.serve(backend(0), serving=replace(scene.serving, instance_max=4))
    assert scene.driver.measure("shop", 10.0) is None
    means_s: list[float] = []
    for at_s, rate, requests, path in ((12.0, 30.0, 20, "/"), (15.0, 200.0, 50, "/"), (17.5, 30.0, 20, "/error")):
        seen = scene.load(rate, requests, path).wait()
        counted = measured(scene, at_s)
        assert (counted.offered, counted.served, counted.rejected) == (requests, requests, 0)
        assert max(0.09, 0.5 * seen.mean_s) <= counted.mean_s <= 1.05 * seen.mean_s
        assert seen.replies == requests
        means_s.append(counted.mean_s)
    light_s, heavy_s, after_s = means_s
    assert heavy_s > 1.5 * max(light_s, after_s)
    assert counted.window_s == 2.5
    scene.reload()
    assert scene.driver.measure("shop", 20.0) is None


def test_nothing_is_measured_of_an_application_that_haproxy_does_not_have(scene: Scene) -> None:
    assert scene.driver.measure("shop", 1.0) is None
    assert scene.driver.measure("shop", 2.0) is None


# --- applications -----------------------------------------------------------------------------------------------------


def test_an_application_without_instances_answers_503_and_one_that_is_gone_does_not_answer(scene: Scene) -> None:
    scene.site("")
    scene.serve(backend(0))
    assert scene.tell().ok
    assert scene.load(RATE, 5).wait().refused == 5
    scene.tell(backend(0))
    gone = scene.driver.set_backends(Balance("shop", (backend(0, drain=True),)))
    assert (gone.ok, gone.drained) == (True, ("shop#0",))
    assert scene.serving_now("shop") == frozenset()
    assert scene.driver.set_backends(Balance("shop", ())).ok
    assert os.listdir(scene.keys.folder) == []
    with pytest.raises(OSError, match="refused"):
        _status(scene)
    assert scene.tell(backend(0), app="wiki").ok  # on the port of the one that is gone


def test_ports_are_refused_that_an_application_may_not_have(scene: Scene) -> None:
    scene.site("")
    scene.serve(backend(0))
    before = process(scene)
    second = scene.tell(backend(0), app="wiki")
    assert (second.ok, second.detail) == (False, f"listen = {scene.serving.listen} is taken by shop")
    low = scene.tell(backend(0), app="low", serving=Serving(80, 443))
    assert (low.ok, "443 is not among the ports 1024 to 65535" in low.detail) == (False, True)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = scene.tell(backend(0), app="wiki", serving=Serving(80, other.getsockname()[1]))
        assert (taken.ok, "in use by another program" in taken.detail) == (False, True)
    assert process(scene) == before
    assert os.listdir(scene.keys.folder) == ["trimtab-shop.cfg"]


def test_instances_without_an_address_are_left_out_and_named(scene: Scene) -> None:
    scene.site("")
    lost = replace(backend(1), address="")
    answer = scene.tell(backend(0), lost)
    assert (answer.ok, answer.detail) == (True, "left out, without an address: shop#1")
    assert scene.serving_now("shop") == {"shop#0"}
    answer = scene.tell(lost)
    assert (answer.ok, answer.detail) == (False, "left out, without an address: shop#1")
    assert not scene.driver.set_backends(Balance("shop", (backend(0),))).ok


def test_many_new_applications_share_reloads(scene: Scene) -> None:
    scene.site("")
    ports = [free_port() for _ in range(12)]
    answers: list[bool] = []

    def tell(index: int) -> None:
        order = replace(scene.serving, listen=ports[index])
        answers.append(scene.tell(backend(0), app=f"app{index}", serving=order).ok)

    threads = [Thread(target=tell, args=(index,)) for index in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 12
    assert scene.master().processes().reloads <= 6


def test_a_configuration_that_haproxy_refuses_holds_nobody_else_up(scene: Scene) -> None:
    """Here it is the operator's: all are refused, the files are as they were, and it is not tried again at once."""
    scene.site("")
    scene.serve(backend(0))
    main = scene.folder / "main.cfg"
    good = main.read_text()
    main.write_text(good + "nonsense\n")
    other = replace(scene.serving, listen=free_port())
    refused = scene.tell(backend(0), app="wiki", serving=other)
    assert (refused.ok, "refused" in refused.detail) == (False, True)
    assert os.listdir(scene.keys.folder) == ["trimtab-shop.cfg"]
    reloads = scene.master().processes().reloads
    assert not scene.tell(backend(0), app="wiki", serving=other).ok
    assert scene.master().processes().reloads == reloads
    assert scene.tell(backend(0), backend(1)).ok
    assert nobody_lost(scene.load(RATE, 20).wait())
    main.write_text(good)
    assert scene.tell(backend(0), app="third", serving=replace(scene.serving, listen=free_port())).ok
    assert scene.tell(backend(0), app="wiki", serving=other).ok


def test_an_haproxy_that_does_not_read_the_folder_is_told_of(scene: Scene, tmp_path: Path) -> None:
    keys = replace(scene.keys, folder=str(tmp_path))
    answer = Haproxy(BalancerKeys("haproxy", haproxy=keys)).set_backends(Balance("shop", (backend(0),), scene.serving))
    assert (answer.ok, "does not read" in answer.detail) == (False, True)


def test_a_probe_says_what_is_checked_whatever_is_in_its_path(scene: Scene) -> None:
    """An application that answers 500 there is down; others of its paths are none of the check's business."""
    scene.site("")
    nasty = "/x\"'\\#${HOME};}%[src]?a=`id`"
    for path, up in (("/healthy", 1), ("/error", 0), (nasty, 1)):
        probe = Probe(ProbeKind.HTTP, scene.port, path, period_s=0.1, limit_s=1.0, fall=1, rise=1)
        order = Balance("shop", (backend(0),), scene.serving, probe=probe)
        assert scene.driver.set_backends(order).ok
        wait_until(f"{up} are up with {path}", lambda wanted=up: scene.healthy_now("shop") == wanted)
