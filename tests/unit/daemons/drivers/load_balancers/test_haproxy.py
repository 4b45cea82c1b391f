"""HAProxy's configuration and commands, what is read of its answers, and the files that it is given, without it."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from daemons.config.controller import BalancerHaproxy, BalancerKeys, ControllerConfig
from daemons.drivers.load_balancers.haproxy import Haproxy
from daemons.drivers.load_balancers.haproxy_config import (
    DesiredProxy,
    Server,
    check_of,
    form_of,
    proxy_of,
    quoted,
    server_of,
    variable_of,
    vm_of,
    wanted_of,
    without_servers,
)
from daemons.drivers.load_balancers.haproxy_folder import Folder
from daemons.drivers.load_balancers.haproxy_runtime import Runtime, parse_processes
from daemons.drivers.load_balancers.haproxy_state import (
    Counters,
    ServerState,
    Table,
    at_work,
    commands,
    differences,
    held,
    looking,
    parse_requests,
    parse_table,
)
from shared.base.errors import InvalidInput, InvalidValue, TransientError
from shared.config.toml import parse
from shared.ports.effects import Backend, Balance
from shared.values.health import Probe, ProbeKind
from shared.values.web_app import Distribution, Limits, Serving

KEYS = BalancerHaproxy()
SERVING = Serving(8080, 8001)
COUNTERS = Counters((7, 1000), 0, 0, answered=0, failed=0, errors=0, spent_us=0, queued=0)
IDLE = ServerState(
    "shop.0", "10.0.0.1", 8080, weight=100, request_max=100, up=True, drains=False, resting=False, sessions=0
)


def backend(index: int, drain: bool = False, weight: float = 1.0) -> Backend:
    return Backend(f"shop#{index}", "n1", drain, f"10.0.0.{index + 1}", weight)


def wanted(*backends: Backend, serving: Serving = SERVING, limits: Limits | None = None) -> DesiredProxy:
    return wanted_of(Balance("shop", backends, serving, limits or Limits()), serving, KEYS)


def table(*servers: ServerState, queue_max: int = 1000) -> Table:
    return Table("", queue_max, {server.name: server for server in servers}, COUNTERS)


def seen(index: int, up: bool = True, drains: bool = False, resting: bool = False) -> ServerState:
    return replace(IDLE, name=f"shop.{index}", address=f"10.0.0.{index + 1}", up=up, drains=drains, resting=resting)


# --- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vm", ["shop#0", "a-b_c#17", "plain"])
def test_names_can_be_told_back(vm: str) -> None:
    assert "#" not in server_of(vm)
    assert vm_of(server_of(vm)) == vm


def test_variables_of_different_applications_differ() -> None:
    names = {variable_of(app, what) for app in ("a", "a-form", "a-queue", "a_form", "A") for what in ("form", "queue")}
    assert len(names) == 10
    assert all(re.fullmatch(r"proc\.[A-Za-z0-9_.]+", name) for name in names)


def test_whatever_means_something_to_haproxy_is_escaped() -> None:
    assert quoted("/a-b?c=1") == "/a-b?c=1"
    assert quoted("/ \"'#\\$\n") == r"/\x20\x22\x27\x23\x5c\x24\x0a"


@pytest.mark.parametrize(
    ("app", "vm"),
    [("shop\nlisten x", "shop#0"), ("shop", "shop#0;quit"), ("shop", "shop 0"), ("", "shop#0"), ("shop", "shop#x")],
)
def test_names_that_could_mean_something_are_refused(app: str, vm: str) -> None:
    answer = Haproxy(BalancerKeys()).set_backends(Balance(app, (Backend(vm, "n1", False, "10.0.0.1"),), SERVING))
    assert (answer.ok, "is not a valid HAProxy name" in answer.detail) == (False, True)


def test_nothing_is_asked_about_what_is_no_name() -> None:
    with pytest.raises(InvalidValue):
        Haproxy(BalancerKeys()).measure("shop;quit", 1.0)


@pytest.mark.parametrize("address", ["", "n1", "10.0.0.1 disabled", "10.0.0.1;quit", "fe80::1%eth0", "1.2.3"])
def test_an_address_that_is_none_is_left_out(address: str) -> None:
    assert wanted(replace(backend(0), address=address)).lost == ("shop#0",)


def test_addresses_are_told_in_one_form() -> None:
    found = wanted(replace(backend(0), address="2001:DB8:0::1"))
    assert found.servers[0].address == "2001:db8::1"
    assert "server shop.0 [2001:db8::1]:8080 " in found.text


@pytest.mark.parametrize(
    ("serving", "limits", "expected"),
    [
        (SERVING, Limits(), (100, 1000)),
        (SERVING, Limits(5, 50), (5, 50)),
        (replace(SERVING, instance_max=3), Limits(5, 50), (3, 50)),
        (replace(SERVING, queue_max=7), Limits(None, 50), (100, 7)),
    ],
)
def test_what_an_owner_says_comes_before_the_model_and_that_before_the_keys(
    serving: Serving, limits: Limits, expected: tuple[int, int]
) -> None:
    found = wanted(backend(0), serving=serving, limits=limits)
    assert (found.servers[0].request_max, found.queue_max) == expected


def test_limits_and_instances_need_no_reload_and_the_rest_does() -> None:
    first = wanted(backend(0))
    assert wanted(backend(1), limits=Limits(5, 50)).digest == first.digest
    others = (
        replace(SERVING, listen=8002),
        replace(SERVING, distribution=Distribution.SOURCE),
        replace(SERVING, queue_limit_s=1.0),
    )
    assert len({first.digest, *(wanted(backend(0), serving=other).digest for other in others)}) == 4


def test_weights_are_whole_and_in_proportion() -> None:
    weighted = replace(SERVING, distribution=Distribution.WEIGHTED)
    weights = (1.0, 0.5, 1e-9, float("nan"), -1.0)
    found = wanted(*(backend(index, weight=weight) for index, weight in enumerate(weights)), serving=weighted)
    assert [server.weight for server in found.servers] == [256, 128, 1, 1, 1]
    same = wanted(*(backend(index, weight=weight) for index, weight in enumerate(weights)))
    assert {server.weight for server in same.servers} == {100}


def test_checks_follow_the_probe() -> None:
    http = Probe(ProbeKind.HTTP, 9000, "/up", period_s=7.0, limit_s=0.5, fall=4, rise=5)
    check = check_of(SERVING, http, KEYS)
    assert check.startswith("check inter 7000 fastinter 1000 downinter 1000 fall 4 rise 5 ")
    assert check.endswith(" port 9000")
    form = form_of("shop", SERVING, http, KEYS)
    assert "http-check send meth GET uri /up ver HTTP/1.1 hdr Host shop" in form
    assert "timeout check 500" in form
    command = Probe(ProbeKind.COMMAND, command="look")
    assert "port" not in check_of(SERVING, command, KEYS)
    assert "http-check" not in form_of("shop", SERVING, command, KEYS)


def test_a_configuration_can_lose_its_instances() -> None:
    assert without_servers(wanted(backend(0), backend(1)).text) == wanted().text


@pytest.mark.parametrize("ports", [(), (8000,), (9000, 8000), (8000, 8001, 8002)])
def test_ports_that_are_no_range_are_refused(ports: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"balancer\.haproxy\.ports"):
        Haproxy(BalancerKeys(haproxy=replace(KEYS, ports=ports)))


def test_its_keys_are_read() -> None:
    text = '[balancer]\ndriver = "haproxy"\n[balancer.haproxy]\nports = [9000, 9001]\naddress = "::1"\n'
    found = parse(text, ControllerConfig).balancer.haproxy
    assert (found.ports, found.address) == ((9000, 9001), "::1")
    with pytest.raises(InvalidInput, match="address"):
        parse('[balancer.haproxy]\naddress = "*:1 ssl"\n', ControllerConfig)


# --- commands ---------------------------------------------------------------------------------------------------------


def test_nothing_is_said_when_nothing_is_different() -> None:
    assert commands(wanted(backend(0)), table(seen(0))) == []
    assert differences(wanted(backend(0)), table(seen(0))) == []


def test_who_comes_comes_before_who_goes() -> None:
    found = commands(wanted(backend(0), backend(1)), table(seen(0), seen(2)))
    assert [line.split()[0] for line in found] == ["add", "enable", *["set"] * 4, "shutdown", "set", "del"]
    words = [line.removeprefix("set server trimtab-shop/shop.1 ") for line in found[2:5]]
    assert words == ["state drain", "health down", "state ready"]
    assert found[-1] == "del server trimtab-shop/shop.2"


def test_the_first_ones_are_checked_before_they_get_requests() -> None:
    for change in (table(), table(seen(0, resting=True), seen(1, resting=True))):
        found = commands(wanted(backend(0), backend(1)), change)
        downs = [found.index(f"set server trimtab-shop/shop.{index} health down") for index in range(2)]
        readies = [found.index(f"set server trimtab-shop/shop.{index} state ready") for index in range(2)]
        assert all(down < ready for down, ready in zip(downs, readies, strict=True))


def test_a_new_process_takes_those_for_healthy_that_served() -> None:
    change = wanted(backend(0), backend(1), backend(2), backend(3, drain=True))
    some = table(seen(0), seen(1, up=False), seen(3))
    assert [server.name for server in at_work(change, some)] == ["shop.0"]
    only_leaving = table(seen(0, up=False), seen(3))
    assert at_work(change, only_leaving) == [Server("shop.3", "10.0.0.4", 8080, 100, 100)]
    assert at_work(change, None) == []
    lines = change.text_with(at_work(change, some)).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("    server ")] == ["shop.0"]


def test_who_leaves_serves_until_another_is_up() -> None:
    change = wanted(backend(0), backend(1, drain=True))
    waiting, ready = table(seen(0, up=False), seen(1)), table(seen(0), seen(1))
    assert held(change, waiting) == {"shop.1"}
    assert (commands(change, waiting), differences(change, waiting)) == ([], [])
    assert commands(change, ready) == ["set server trimtab-shop/shop.1 state drain"]
    assert not held(wanted(backend(1, drain=True)), table(seen(1)))
    assert not held(change, table(seen(0, up=False), seen(1, up=False)))


def test_every_difference_is_found_and_told() -> None:
    change = wanted(backend(0))
    for other in (
        replace(IDLE, address="10.0.0.9"),
        replace(IDLE, port=1),
        replace(IDLE, weight=1),
        replace(IDLE, request_max=1),
        replace(IDLE, drains=True),
        replace(IDLE, resting=True),
    ):
        assert len(commands(change, table(other))) == (3 if other.resting else 1)
        assert len(differences(change, table(other))) == 1
    assert len(commands(change, table(IDLE, queue_max=1))) == 2
    assert len(differences(change, table(IDLE, queue_max=1))) == 1
    assert len(differences(change, table(IDLE, seen(1)))) == 1
    assert not differences(change, table(IDLE, seen(1, resting=True)))  # it is deleted another time


# --- what it answers --------------------------------------------------------------------------------------------------


def test_what_is_no_answer_is_no_table() -> None:
    assert parse_table("shop", "Can't find backend.\n") is None
    for printed in (
        "",
        "Permission denied\n",
        "# pxname,svname,qcur\ntrimtab-shop,FRONTEND,0\ntrimtab-shop,BACKEND,0\n",
    ):
        with pytest.raises(TransientError):
            parse_table("shop", printed)


def test_counters_tell_what_came_in_between() -> None:
    now = Counters((7, 1000), 100, 10, answered=70, failed=20, errors=5, spent_us=7_500_000, queued=3)
    sample = now.since(COUNTERS, 5.0)
    assert sample is not None
    assert (sample.offered, sample.served, sample.rejected, sample.queued) == (100, 75, 25, 3)
    assert (sample.mean_s, sample.window_s, sample.flow) == (0.1, 5.0, "")


@pytest.mark.parametrize(
    ("now", "window_s"),
    [
        (replace(COUNTERS, process=(8, 1000)), 5.0),
        (replace(COUNTERS, process=(7, 1001)), 5.0),
        (replace(COUNTERS, offered=-1), 5.0),
        (COUNTERS, 0.0),
    ],
    ids=["another process", "the same number again", "cleared", "no time"],
)
def test_counters_that_began_anew_tell_nothing(now: Counters, window_s: float) -> None:
    assert now.since(COUNTERS, window_s) is None


def test_the_master_says_how_it_stands() -> None:
    printed = (
        "#<PID>  <type>  <reloads>  <uptime>  <version>\n1162  master  5 [failed: 2]  0d00h02m07s 2.6\n# workers\n"
        "1271  worker  1  0d00h00m00s 2.6\n# old workers\n1233  worker  3  0d00h00m43s  2.6\n# programs\n9 foo 0 0 -\n"
    )
    found = parse_processes(printed)
    assert (found.reloads, found.failed, found.worker, found.leaving) == (5, 2, 1271, (1233,))
    with pytest.raises(TransientError, match="answers"):
        parse_processes("Unknown command\n")


def test_who_does_not_answer_in_time_is_out_of_reach(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        with pytest.raises(TransientError, match="timed out"):
            Runtime(str(tmp_path / "s"), 0.1).ask(looking("shop"))


# --- files ------------------------------------------------------------------------------------------------------------


def folder_of(path: Path, reload: Callable[[], bool] = lambda: True) -> Folder:
    return Folder(str(path), reload)


def test_a_port_has_one_owner_also_after_a_restart(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    assert folder.claim("shop", 8001) == ""
    assert folder.claim("wiki", 8001) == "shop"
    folder.write("shop", wanted().text)
    assert folder_of(tmp_path).claim("wiki", 8001) == "shop"
    assert folder.claim("shop", 8002) == ""
    folder.release("shop")
    assert folder.claim("wiki", 8001) == "shop"
    folder.write("shop", None)
    folder.release("shop")
    assert folder.claim("wiki", 8001) == ""


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    folder.write("shop", "one\n")
    folder.write("shop", "two\n")
    assert [file.name for file in tmp_path.iterdir()] == ["trimtab-shop.cfg"]
    assert folder.text("shop") == "two\n"
    assert (tmp_path / "trimtab-shop.cfg").stat().st_mode & 0o777 == 0o644
    with pytest.raises(TransientError, match="cannot be written"):
        folder_of(tmp_path / "nothing").write("shop", "one\n")


def test_one_that_is_refused_holds_nobody_up(tmp_path: Path) -> None:
    """All come while the first reload runs; the next takes all, and finds which of them is bad."""
    begun, free = threading.Event(), threading.Event()
    reloads = 0

    def reload() -> bool:
        nonlocal reloads
        reloads += 1
        if reloads == 1:
            begun.set()
            free.wait(20.0)
        return not any("bad" in file.read_text() for file in tmp_path.glob("*.cfg"))

    folder, answers = folder_of(tmp_path, reload), dict[str, bool]()

    def change(app: str) -> None:
        answers[app] = folder.change(app, f"{app}\n")

    threads = [threading.Thread(target=change, args=(app,)) for app in ("first", "a", "b", "bad", "c", "d", "e", "f")]
    threads[0].start()
    begun.wait(20.0)
    for thread in threads[1:]:
        thread.start()
    while len(folder._waiting) < 7:
        threading.Event().wait(0.001)
    free.set()
    for thread in threads:
        thread.join(20.0)
    assert answers == {"first": True, "a": True, "b": True, "bad": False, "c": True, "d": True, "e": True, "f": True}
    assert reloads <= 8
    assert sorted(file.stem.removeprefix("trimtab-") for file in tmp_path.iterdir()) == sorted(set(answers) - {"bad"})


def test_a_reload_that_nobody_answers_changes_no_file(tmp_path: Path) -> None:
    def reload() -> bool:
        raise TransientError("nobody there")

    folder_of(tmp_path).write("shop", "one\n")
    folder = folder_of(tmp_path, reload)
    for text in ("two\n", None):
        with pytest.raises(TransientError, match="nobody"):
            folder.change("shop", text)
    assert folder.text("shop") == "one\n"


def test_requests_in_progress_that_cannot_be_read_are_no_answer() -> None:
    printed = "# pxname,svname,scur,qcur,\ntrimtab-shop,shop:0,many,0,\n"
    with pytest.raises(TransientError, match="cannot be understood"):
        parse_requests("shop", printed.replace("trimtab-shop", proxy_of("shop")))
