"""A whole cluster of processes on a private broker: a job is done once, whoever is killed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from shared.bus.broker_setup import Account, ManagementApi, definitions
from shared.protocol.operator_messages import AddNode, SubmitJob
from shared.values.jobs import Job, Stage
from tests.integration.harness import QUICK_LEADERS, Lab, lab, need_driver
from tests.integration.private_broker import private_broker

PASSWORD = "secret"
LIMIT_S = 60.0
JOB = Job(
    "job",
    (Stage(10_000.0, 1_000.0, memory_mib=1_000),),
    instances=2,
    spread=True,
    template="fake:work=10000;max=1000;instances=2",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Lab]:
    """Three nodes and two controllers, running; the nodes have been added."""
    need_driver()
    with private_broker() as broker:
        nodes = "n1:2x1000:4000,n2:2x1000:4000,n3:2x1000:4000"
        url, two = broker.url("any", PASSWORD), ("c1", "c2")
        with lab(url, nodes, controllers=two, costs="1,0,0,0.001", controller=QUICK_LEADERS) as made:
            accounts = [Account(user, PASSWORD) for user in made.users]
            ManagementApi(broker.management_url, broker.user, broker.password).apply(definitions("/", accounts))
            made.start()
            for node in made.nodes:
                reply = made.ask(partial(AddNode, node=node), LIMIT_S)
                assert reply.done, reply
            yield made


def test_a_job_is_done_once_whoever_is_killed(cluster: Lab) -> None:
    """The agents that run it and both controllers, one after the other, die in the middle."""
    submit = partial(SubmitJob, job=JOB)
    # Refused until two nodes have reported.
    cluster.wait_for(lambda: cluster.ask(submit).done, LIMIT_S, "room for the job")
    cluster.wait_for(lambda: len(cluster.homes()) == 2, LIMIT_S, "the start of both instances")
    homes = cluster.homes()
    for node in {node for nodes in homes.values() for node in nodes}:
        cluster.agents[node].kill()
        cluster.agents[node].start()
    for controller in cluster.controllers.values():
        controller.kill()
        controller.start()

    def over() -> bool:
        assert all(len(nodes) == 1 for nodes in cluster.homes().values())
        return bool(cluster.fake.state()["tasks"][0]["completions"])

    cluster.wait_for(over, LIMIT_S, "the end of the job")
    cluster.wait_for(
        lambda: not any(cluster.truth(node)["domains"] for node in cluster.nodes), LIMIT_S, "the removal of its VMs"
    )
    state = cluster.fake.state()
    (task,) = state["tasks"]
    assert [completion["attempt"] for completion in task["completions"]] == [1]
    assert state["doubles"] == []
    cluster.wait_for(
        lambda: any("job-completed" in controller.log.read_text() for controller in cluster.controllers.values()),
        LIMIT_S,
        "word of the job's end",
    )
