"""`--watch`: a view again and again, redrawn on a terminal, one below the other elsewhere."""

from __future__ import annotations

import json
import os
import pty
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress

import click
import pytest

from daemons.cli.main import main
from shared.protocol.operator_messages import DrainNode
from tests.support.operator_harness import URL, Rig


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.run(30.0)
    return made


def interrupt_after(rig: Rig, seconds: float) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    rig.loop.engine.at(rig.now_s() + seconds, 0, interrupt)


@contextmanager
def terminal() -> Iterator[bytearray]:
    """Standard output is a terminal; gives what was written to it, all of it once this is left."""
    written = bytearray()
    master, slave = pty.openpty()

    def read() -> None:
        with suppress(OSError):  # nobody writes any more
            while part := os.read(master, 1 << 16):
                written.extend(part)

    reader = threading.Thread(target=read)
    reader.start()
    with open(slave, "w", encoding="utf-8") as screen, redirect_stdout(screen):
        yield written
    reader.join()
    os.close(master)


@pytest.mark.parametrize(("words", "times"), [(("--watch",), 4), (("--watch=1",), 7), (("--watch", "5"), 2)])
def test_on_a_pipe_tables_follow_each_other_with_a_blank_line(rig: Rig, words: tuple[str, ...], times: int) -> None:
    interrupt_after(rig, 6.9)

    outcome = rig.trimtab("nodes", "list", *words)

    assert outcome.exit_code == 0
    lines = [line.rstrip() for line in outcome.stdout.splitlines()]
    titles = [at for at, line in enumerate(lines) if line == "nodes"]
    assert len(titles) == times
    assert titles[0] == 0
    assert [lines[at - 1] for at in titles[1:]] == [""] * (times - 1)
    assert rig.connections == 1


def test_a_view_shows_what_has_changed(rig: Rig) -> None:
    rig.loop.engine.at(rig.now_s() + 3.0, 0, lambda: rig.loop.operator.send(DrainNode("d", "n1", True)))
    interrupt_after(rig, 20.0)

    shown = rig.trimtab("nodes", "show", "n1", "--watch").stdout

    assert "in-service" in shown
    assert "draining" in shown


def test_on_a_terminal_it_is_redrawn(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time the cursor goes up over what was there; the table comes once for each time, the last with the time."""
    interrupt_after(rig, 4.9)
    env = {"TRIMTAB_URL": URL, "HOME": "/none", "TERM": "xterm", "COLUMNS": "80", "LINES": "40"}

    for name, value in env.items():
        monkeypatch.setenv(name, value)

    with terminal() as written, pytest.raises(SystemExit) as ended:
        main.main(["status", "--watch"], obj=rig.access)

    shown = written.decode()
    assert not ended.value.code
    assert len(re.findall(r"every 2 s, ctrl-c ends", shown)) >= 3
    assert re.search(r"\x1b\[\d*A", shown)
    assert "\x1b[?25h" in shown  # the cursor is there again


def test_json_is_refused(rig: Rig) -> None:
    for words in (("-o", "json", "--watch"), ("--watch", "-o", "json")):
        outcome = rig.trimtab("nodes", "list", *words)
        assert outcome.exit_code == 2
        assert "--watch does not go with --output json" in json.loads(outcome.stdout)["error"]["message"]
        assert "--watch does not go with --output json" in outcome.stderr


@pytest.mark.parametrize("value", ["0.1", "nan", "n1", "3601"])
def test_intervals_that_cannot_be(rig: Rig, value: str) -> None:
    outcome = rig.trimtab("nodes", "show", "--watch", value, "n1")
    assert outcome.exit_code == 2
    assert "from 0.5 to 3600" in outcome.stderr


def test_a_refusal_ends_it(rig: Rig) -> None:
    assert rig.trimtab("nodes", "show", "n9", "--watch").exit_code == 1


def test_a_controller_that_is_away_for_a_while_is_waited_for(rig: Rig) -> None:
    shell = rig.loop.controllers["a"]
    rig.loop.engine.at(rig.now_s() + 3.0, 0, shell.kill)
    rig.loop.engine.at(rig.now_s() + 20.0, 0, shell.restart)
    interrupt_after(rig, 60.0)

    outcome = rig.trimtab("status", "--watch")

    assert outcome.exit_code == 0
    assert "error: no controller answered" in outcome.stderr
    assert len([line for line in outcome.stdout.splitlines() if line.rstrip() == "trimtab"]) > 5


def test_every_list_and_show_of_a_view_has_it() -> None:
    """And no command that changes something."""
    found = set()
    for group in ("nodes", "jobs", "vms", "web", "env", "plan", "assurance", "notifications", "profile"):
        command = main.get_command(click.Context(main), group)
        assert isinstance(command, click.Group)
        for name, below in command.commands.items():
            if any("--watch" in each.opts for each in below.params):
                found.add(f"{group} {name}")
    assert found == {
        "nodes list",
        "nodes show",
        "jobs list",
        "jobs show",
        "vms list",
        "vms show",
        "web list",
        "web show",
        "env list",
        "env show",
        "plan show",
        "assurance show",
        "notifications list",
        "profile show",
    }
