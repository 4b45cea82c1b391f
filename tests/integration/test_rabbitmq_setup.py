"""The plan of what a broker must hold, and its two ways onto a real broker."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from shared.base.errors import BusUnavailable, PermanentError
from shared.bus.broker_setup import (
    Account,
    Executor,
    ManagementApi,
    Rabbitmqctl,
    definitions,
    differences,
    keeping,
    password_hash,
)
from shared.bus.rabbitmq.bus import connect
from shared.ports.bus import Delivery
from shared.protocol.shares import WEB
from shared.protocol.topology import ACTIONS, CONTROLLER_QUEUE, RESULTS, agent_queue
from tests.integration.private_broker import PROGRAMS, PrivateBroker
from tests.ports import free_ports

PEOPLE = (Account("controller.a", "one"), Account("agent.n1", "two"), Account("operator.ann", "three"))


def api(broker: PrivateBroker) -> Executor:
    """Over HTTP."""
    return ManagementApi(broker.management_url, broker.user, broker.password)


def ctl(broker: PrivateBroker) -> Executor:
    """By the broker's own command."""
    return Rabbitmqctl((str(PROGRAMS / "rabbitmqctl"),), broker.environment)


@pytest.mark.parametrize("executor", [api, ctl], ids=["http", "rabbitmqctl"])
def test_setup(executor: Callable[[PrivateBroker], Executor], broker: PrivateBroker) -> None:
    """It makes everything, changes nothing the second time, keeps messages, and takes users and queues away again."""
    tool = executor(broker)
    vhost = f"setup {executor.__name__}"
    wanted = definitions(vhost, PEOPLE, nodes=("n1", "n2"))
    assert f"queues: {vhost} agent.n1 is missing" in differences(wanted, tool.present())

    tool.apply(wanted)

    assert differences(wanted, tool.present()) == ()
    controller = connect(broker.url("controller.a", "one", vhost.replace(" ", "%20")))
    controller.publish(ACTIONS, "n1", b"order", 1)
    assert controller.poll(5.0)
    controller.close()
    tool.apply(definitions(vhost, PEOPLE, nodes=("n1", "n2")))
    agent = connect(broker.url("agent.n1", "two", vhost.replace(" ", "%20")))
    agent.consume("agent.n1", 1)
    (delivery,) = agent.poll(5.0)
    assert isinstance(delivery, Delivery)
    assert delivery.body == b"order"
    agent.close()

    for _ in range(2):
        tool.remove_user("agent.n1")
        tool.remove_queue(vhost, agent_queue("n1").name)

    missing = differences(wanted, tool.present())
    assert {"users: agent.n1 is missing", f"queues: {vhost} agent.n1 is missing"} <= {*missing}
    with pytest.raises(BusUnavailable):
        connect(broker.url("agent.n1", "two", vhost.replace(" ", "%20")))


def test_a_new_password_replaces_the_old_one(broker: PrivateBroker) -> None:
    """Setting up again with another password is how it is changed."""
    tool = api(broker)
    tool.apply(definitions("changing", [Account("operator.bob", "old")]))
    tool.apply(definitions("changing", [Account("operator.bob", "new")]))

    connect(broker.url("operator.bob", "new", "changing")).close()
    with pytest.raises(BusUnavailable, match="password"):
        connect(broker.url("operator.bob", "old", "changing"))


@pytest.mark.parametrize("executor", [api, ctl], ids=["http", "rabbitmqctl"])
def test_accounts_that_are_there_get_their_limits_and_keep_their_passwords(
    executor: Callable[[PrivateBroker], Executor], broker: PrivateBroker
) -> None:
    """Given an account of an earlier setup, when another is made, then the first has limits too: so many connections
    and not one more, and none of them ends for that."""
    tool, vhost = executor(broker), f"limits-{executor.__name__}"
    before = definitions(vhost, [Account("web.shop", "old")])
    before["users"][0].pop("limits")
    tool.apply(before)
    wanted = definitions(vhost, [Account("web.shop", "unused"), Account("user.kim", "new")])
    assert [line for line in differences(wanted, tool.present()) if "limits" in line]

    tool.apply(keeping(wanted, tool.present(), vhost, ["user.kim"]))

    assert differences(wanted, tool.present()) == ()
    held = [connect(broker.url("web.shop", "old", vhost)) for _ in range(WEB.connections_max)]
    with pytest.raises(BusUnavailable, match="limit"):
        connect(broker.url("web.shop", "old", vhost))
    for one in held:
        one.close()
    connect(broker.url("user.kim", "new", vhost)).close()


def test_a_queue_of_another_shape_is_named(broker: PrivateBroker) -> None:
    """The broker leaves it as it is; `differences` says so."""
    tool = api(broker)
    wanted = definitions("shapes", ())
    other = copy.deepcopy(wanted)
    other["queues"][0]["arguments"] = {"x-queue-type": "classic"}
    tool.apply(other)

    tool.apply(wanted)

    (line,) = differences(wanted, tool.present())
    assert line.startswith("queues: shapes controller: arguments is {'x-queue-type': 'classic'}, not")


def test_what_cannot_be_done_says_why(broker: PrivateBroker) -> None:
    """A wrong password, nobody there, nonsense, a missing command."""
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(PermanentError, match="401"):
        ManagementApi(broker.management_url, "admin", "guess").present()
    with pytest.raises(BusUnavailable, match="management plugin"):
        ManagementApi(nobody, "admin", "admin").present()
    with pytest.raises(PermanentError, match="refused POST"):
        api(broker).apply({"queues": [{"name": "x", "vhost": "nowhere"}]})
    with pytest.raises(PermanentError, match="failed"):
        ctl(broker).apply({"queues": [{"name": "x", "vhost": "nowhere"}]})
    with pytest.raises(BusUnavailable, match="cannot be run"):
        Rabbitmqctl(("rabbitmqctl-of-nobody",)).present()
    with pytest.raises(BusUnavailable, match="failed"):
        Rabbitmqctl(
            (str(PROGRAMS / "rabbitmqctl"),), {**broker.environment, "RABBITMQ_NODENAME": "x@localhost"}
        ).present()


def test_definitions_name_no_password() -> None:
    """Only salted hashes travel; the same salt gives the same hash as RabbitMQ's own."""
    plan = definitions("v", PEOPLE, salt=lambda: b"\x90\x8d\xc6\x0a")

    assert password_hash("test12", b"\x90\x8d\xc6\x0a") == "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    assert all(account.password not in str(plan["users"]) for account in PEOPLE)
    assert all(account.password not in repr(account) for account in PEOPLE)


def test_a_plan_differs_in_nothing_from_itself() -> None:
    """Each kind of definition is compared: taking one away or changing it is found."""
    plan = definitions("v", PEOPLE, nodes=("n1",))
    assert differences(plan, plan) == ()
    for kind, entries in plan.items():
        for i in range(len(entries)):
            less = {**plan, kind: entries[:i] + entries[i + 1 :]}
            assert len(differences(plan, less)) == 1, (kind, i)
    for kind, what in (("permissions", "write"), ("topic_permissions", "write"), ("exchanges", "type")):
        changed = copy.deepcopy(plan)
        changed[kind][-1][what] = ".+"
        (line,) = differences(plan, changed)
        assert line.startswith(kind)
    assert (RESULTS, CONTROLLER_QUEUE) in {(one["source"], one["destination"]) for one in plan["bindings"]}
