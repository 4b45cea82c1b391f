"""Orders to a demo: the errors when none listens, refuses, or answers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shared.base.errors import TransientError
from sim_backend.demo.control import DemoRefusal, NoDemo, ask, await_end


@contextmanager
def listening(path: Path, *parts: bytes) -> Iterator[list[bytes]]:
    """Somebody who takes one line at `path`, answers these parts and closes; with none it stays silent."""
    taken: list[bytes] = []
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.bind(str(path))
    door.listen()
    links: list[socket.socket] = []

    def serve() -> None:
        link, _ = door.accept()
        links.append(link)
        taken.append(link.recv(65_536))
        for part in parts:
            link.sendall(part)
        if parts:
            link.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield taken
    thread.join()
    for each in (*links, door):
        each.close()


def test_an_answer_in_parts_is_one(tmp_path: Path) -> None:
    with listening(tmp_path / "s", b'{"host": "host', b'1"}\n') as taken:
        assert ask(tmp_path / "s", "kill-host", "host1") == {"host": "host1"}

    assert json.loads(taken[0]) == {"order": "kill-host", "host": "host1"}


def test_a_refusal_has_its_reason(tmp_path: Path) -> None:
    with listening(tmp_path / "s", b'{"error": "host1 is off already"}\n'), pytest.raises(DemoRefusal, match="is off"):
        ask(tmp_path / "s", "kill-host", "host1")


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(NoDemo, match="no demo runs in"):
        ask(tmp_path / "s", "status")
    with pytest.raises(NoDemo, match="no demo runs in"):
        await_end(tmp_path / "s")


@pytest.mark.parametrize("parts", [(), (b'{"half": ',)])
def test_no_whole_answer(tmp_path: Path, parts: tuple[bytes, ...]) -> None:
    with listening(tmp_path / "s", *parts), pytest.raises(TransientError, match="does not answer"):
        ask(tmp_path / "s", "status", limit_s=0.2)


def test_the_end_is_waited_for(tmp_path: Path) -> None:
    with listening(tmp_path / "s", b" ") as taken:
        await_end(tmp_path / "s")

    assert json.loads(taken[0])["order"] == "stop"


def test_a_demo_that_does_not_end(tmp_path: Path) -> None:
    with listening(tmp_path / "s"), pytest.raises(TransientError, match="has not ended within"):
        await_end(tmp_path / "s", limit_s=0.2)
