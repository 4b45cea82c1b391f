"""What cannot work is refused by name, with an exit status and what to do; what was asked for before is not lost."""

from __future__ import annotations

import base64
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

import msgpack  # type: ignore[import-untyped]
import pika  # type: ignore[import-untyped]
import pytest

from daemons.store import SqlStore
from daemons.store.schema import VERSION_TABLE
from shared.bus.rabbitmq.addresses import dead_message
from shared.protocol.dead_letter import DeadMessage
from shared.protocol.shares import share_of
from shared.protocol.topology import (
    ACTIONS,
    CONTROLLER_QUEUE,
    DEAD_BODY_BYTES_MAX,
    DEAD_QUEUE,
    REPORTS,
    REQUESTS,
    agent_user,
    report_key,
)
from tests.integration.harness import OPERATOR, user_url
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import LIMIT_S, PASSWORD, SOON_S, TRIMTAB, Scene, log_lines, says, scene

GARBAGE = os.urandom(1024) * 10_240  # 10 MiB
DISK_MIB = 16
NEWER = 99


@pytest.fixture(scope="module")
def town(broker: PrivateBroker) -> Iterator[Scene]:
    """A cluster that all of this must leave unharmed."""
    with scene(broker) as made:
        yield made


def unharmed(town: Scene, job: str) -> None:
    """The same processes still work: a job goes through."""
    town.submit(job, work_s=0.5)
    town.wait_for(lambda: job in town.told("job-completed"), SOON_S, f"{job} to be complete")
    assert all(one.alive and one.lives == 1 for one in town.lab.processes)


# --- the command ---------------------------------------------------------------------------------------------------


def test_a_job_file_with_problems(town: Scene) -> None:
    """Every problem is named with file and key; nothing is submitted."""
    file = town.job_file("broken", work_s=1.0)
    file.write_text("importence = 2\nvcpus = 0\n" + file.read_text() + 'colour = "red"\n')

    said = town.run("jobs", "submit", str(file), "--output", "json")

    assert said.status == 2
    problems = {one["where"]: one["what"] for one in said.data["error"]["problems"]}
    assert all(where.startswith(f"{file}:") for where in problems)
    assert {where.rpartition(" ")[2] for where in problems} == {"importence", "vcpus", "stages[0].colour"}
    assert all(where in said.err for where in problems)
    assert town.run("jobs", "submit", str(file.with_name("nowhere.toml"))).status == 2
    assert town.run("jobs", "cancel", "broken").status == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("nodes", "drain", "n9"), "unknown-node"),
        (("nodes", "confirm-off", "--yes", "n9"), "unknown-node"),
        (("jobs", "cancel", "nobody"), "unknown-job"),
        (("jobs", "show", "nobody"), "unknown-job"),
        (("vms", "migrate", "nobody#0", "n1"), "unknown-vm"),
    ],
)
def test_unknown_names(words: tuple[str, ...], code: str, town: Scene) -> None:
    """Exit status 1 with the code, and the names that there are where one is near."""
    said = town.run(*words)
    assert (said.status, code in said.err) == (1, True), said
    assert "n9" not in words or "n1" in said.err


def test_a_name_that_cannot_be_one(town: Scene) -> None:
    """Wrong usage: exit status 2, and nothing is sent."""
    said = town.run("nodes", "drain", "n1#2")
    assert (said.status, "n1#2" in said.err) == (2, True)


ADDRESSES = {
    "nobody listens": ("operator.lab:secret", 1, 1, "nobody listens there: is the broker running"),
    "wrong password": ("operator.lab:gu3ss", 0, 1, "wrong user or password"),
    "nobody's name": ("operator.nobody:gu3ss", 0, 1, "wrong user or password"),
    "an agent's name": ("agent.n1:secret", 0, 2, "may not ask the controller"),
}


@pytest.mark.parametrize("case", ADDRESSES)
def test_a_broker_that_cannot_be_asked(case: str, town: Scene) -> None:
    """The reason and what to do about it, without the password."""
    who, port, status, text = ADDRESSES[case]
    url = f"amqp://{who}@127.0.0.1:{port or town.broker.amqp}/{town.vhost}"

    said = town.run("status", env={"TRIMTAB_URL": url})

    assert (said.status, text in said.err) == (status, True), said
    assert "gu3ss" not in said.out + said.err
    assert "Traceback" not in said.err


# --- the bus -------------------------------------------------------------------------------------------------------


def test_garbage_on_every_queue(town: Scene) -> None:
    """10 MiB to the controller and among the reports become a dead letter each, cut, with its reason; to an agent,
    which may write none, a line of its log."""
    size = len(GARBAGE)
    targets = {
        (REQUESTS, CONTROLLER_QUEUE): (OPERATOR, CONTROLLER_QUEUE),
        (REPORTS, report_key("n1")): (agent_user("n1"), "reports.c1"),
    }
    before = len(dead(town))
    for (exchange, key), (user, _) in targets.items():
        send(town, user, exchange, key, GARBAGE)
    send(town, "controller.c1", ACTIONS, "n1", GARBAGE)

    def refused() -> bool:
        lines = [line for line in log_lines(town.lab.agents["n1"]) if line["event"] == "undecodable delivery"]
        return any(line["reason"].startswith(f"{size} bytes") for line in lines)

    town.wait_for(refused, SOON_S, "the line of the agent's log")

    town.wait_for(lambda: len(dead(town)) == before + len(targets), SOON_S, "the dead letters")
    letters = dead(town)[before:]
    assert {(letter.sender, letter.queue) for letter in letters} == set(targets.values())
    for letter in letters:
        most = share_of(letter.sender).body_bytes_max
        assert letter.reason == f"{size} bytes, expected at most {most} of {letter.sender}"
        assert letter.body == GARBAGE[:DEAD_BODY_BYTES_MAX]
    unharmed(town, "after-garbage")


def test_what_is_no_message_that_we_know(town: Scene) -> None:
    """Noise, a kind that is not known and a newer version each say what was wrong with them."""
    bodies = {
        b"\xc1noise": "",
        msgpack.packb({"k": "make-coffee", "v": 1, "b": {}}): "make-coffee",
        msgpack.packb({"k": "cancel-job", "v": NEWER, "b": {"request": "r", "job": "j"}}): f"version {NEWER}",
    }
    before = len(dead(town))
    for body in bodies:
        send(town, OPERATOR, REQUESTS, CONTROLLER_QUEUE, body)

    town.wait_for(lambda: len(dead(town)) == before + len(bodies), SOON_S, "the dead letters")
    letters = {letter.body: letter for letter in dead(town)[before:]}
    assert set(letters) == set(bodies)
    for body, text in bodies.items():
        assert text in letters[body].reason
        assert letters[body].reason
        assert (letters[body].sender, letters[body].queue) == (OPERATOR, CONTROLLER_QUEUE)
    told = [line for line in log_lines(town.lab.controllers["c1"]) if line["event"] == "undecodable delivery"]
    assert any(f"version {NEWER}" in line["reason"] for line in told)
    unharmed(town, "after-noise")


def send(town: Scene, user: str, exchange: str, key: str, body: bytes) -> None:
    """Publish what no honest program would."""
    with pika.BlockingConnection(pika.URLParameters(user_url(town.lab.broker, user))) as raw:
        channel = raw.channel()
        channel.confirm_delivery()
        channel.basic_publish(exchange, key, body, pika.BasicProperties(user_id=user))


def dead(town: Scene) -> list[DeadMessage]:
    """The dead letters, oldest first; they stay."""
    wanted = {"count": 100, "ackmode": "ack_requeue_true", "encoding": "base64"}
    found = town.api.call("POST", f"queues/{quote(town.vhost, safe='')}/{DEAD_QUEUE}/get", wanted)
    return [
        dead_message(
            one["properties"].get("headers", {}),
            one["routing_key"],
            one["properties"].get("user_id", ""),
            base64.b64decode(one["payload"]),
        )
        for one in found
    ]


# --- the daemons ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["trimtab-agent", "trimtab-controller"])
def test_a_configuration_with_problems(program: str, tmp_path: Path) -> None:
    """Exit status 2, every problem by file, line and key, without the password."""
    file = tmp_path / "broken.toml"
    file.write_text('colour = "red"\n[periods]\nreport_s = -1\n[bus]\nurl = "http://operator:gu3ss@host/"\n')

    command = [str(Path(TRIMTAB).with_name(program)), "--config", str(file)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=False)

    assert said.returncode == 2
    assert [line.split(" ")[1].rstrip(":") for line in said.stderr.splitlines()] == [
        "colour",
        "periods.report_s",
        "bus.url",
    ]
    assert all(line.startswith(f"{file}:") for line in said.stderr.splitlines())
    assert "gu3ss" not in said.stderr


def test_daemons_with_a_wrong_password(broker: PrivateBroker) -> None:
    """They say so and go on trying; once the password is right they are there without anyone's help."""
    with scene(broker, begin=False) as town:
        daemons = [*town.lab.agents.values(), *town.lab.controllers.values()]
        town.set_passwords("another")
        for daemon in daemons:
            daemon.start()
        for daemon in daemons:
            town.wait_for(partial(says, daemon, "wrong user or password"), SOON_S, f"word of {daemon.name}")
            assert PASSWORD not in daemon.tail()
        assert all(daemon.alive for daemon in daemons)

        town.set_passwords(PASSWORD)
        town.follow()
        town.join()
        unharmed(town, "job")


# --- the store -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder):
        yield folder


@contextmanager
def mounted(folder: Path, mib: int = DISK_MIB) -> Iterator[None]:
    """Skips the test where nothing may be mounted, with CI=true it fails."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, timeout=60.0, check=False)
    if done.returncode:
        reason = f"a small disk needs root and the right to mount: {done.stderr.strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=60.0)


def test_a_store_whose_disk_is_full(broker: PrivateBroker, small_disk: Path) -> None:
    """What runs goes on, what is asked for waits in its queue, and is done once there is room again."""
    with scene(broker, store=f"sqlite:///{small_disk}/controller.db") as town:
        town.submit("runs", work_s=10.0)
        town.running("runs#0")
        filler = small_disk / "filler"
        fill(filler)

        said = town.run("jobs", "submit", str(town.job_file("waits", 1.0)), "--timeout", "5")

        assert (said.status, "no controller answered within 5 s" in said.err) == (1, True), said
        controller = town.lab.controllers["c1"]
        town.wait_for(lambda: says(controller, "its disk is full: free space"), SOON_S, "the reason")
        town.wait_for(lambda: town.completions()["runs"], SOON_S, "the end of what ran")
        filler.unlink()
        town.all_done_once("runs", "waits")
        town.wait_for(lambda: town.told("job-completed") == {"runs", "waits"}, SOON_S, "word of both")
        assert controller.lives >= 2


def fill(filler: Path) -> None:
    """Use up whatever is left of a disk."""
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def test_a_store_of_a_newer_version(broker: PrivateBroker, tmp_path: Path) -> None:
    """Exit status 2 with both versions and what to do; it is left as it was, and what was asked for waits."""
    path = tmp_path / "controller.db"
    with closing(SqlStore(f"sqlite:///{path}")) as store:
        _, known = store.upgrade()
    set_version(path, NEWER)
    with scene(broker, store=f"sqlite:///{path}", begin=False) as town:
        controller = town.lab.controllers["c1"]
        controller.start()
        assert controller.wait(LIMIT_S) == 2
        said = controller.tail()
        assert f"its tables have version {NEWER}, this program knows {known}" in said
        assert "a Trimtab at least as new as the store" in said
        assert "Traceback" not in said

        waiting = town.run("jobs", "submit", str(town.job_file("waits", 1.0)), "--timeout", "2")
        assert (waiting.status, "still be carried out" in waiting.err) == (1, True)
        set_version(path, known)
        town.begin()
        town.all_done_once("waits")


def set_version(path: Path, version: int) -> None:
    """Write another version into a store."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", (str(version),))
        connection.commit()
