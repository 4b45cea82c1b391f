"""`trimtab demo`: try Trimtab on simulated hosts, without root, libvirt or a broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, TypeVar

import click
from rich.console import Group, RenderableType
from rich.text import Text

from daemons.cli.numbers import Whole
from daemons.cli.output import CommandGroup, emit, output_option, say
from daemons.cli.render import listing, record
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput, PermanentError, Problem
from sim_backend.demo.control import NoDemo, ask, await_end
from sim_backend.demo.layout import HOSTS_MAX, Layout

HOSTS, PORT = 6, 8440
STATE_VARIABLE = "XDG_STATE_HOME"
FOLDER_VARIABLE, PORT_VARIABLE = "TRIMTAB_DEMO_FOLDER", "TRIMTAB_DEMO_PORT"
STOP_S = 30.0
NEEDED = ("starlette", "uvicorn")  # of the extra `portal`

_Command = TypeVar("_Command", bound=Callable[..., Any])


class DemoGroup(CommandGroup):
    """Starts a demo when no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `start` before options, or where there is nothing."""
        named = bool(args) and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["start", *args])


def default_folder() -> Path:
    """Return where a demo keeps its files: below the user's folder for state (XDG base directories; a variable that is
    no absolute path counts as unset)."""
    home = os.environ.get(STATE_VARIABLE, "")
    return (Path(home) if home.startswith("/") else Path.home() / ".local/state") / "trimtab/demo"


def _folder_option(command: _Command) -> _Command:
    return click.option(
        "--folder",
        type=click.Path(path_type=Path, file_okay=False),
        envvar=FOLDER_VARIABLE,
        show_envvar=True,
        help=f"Folder of the demo's files.  [default: ${STATE_VARIABLE}/trimtab/demo (~/.local/state/trimtab/demo)]",
    )(command)


def _layout(folder: Path | None) -> Layout:
    return Layout((folder or default_folder()).absolute())


@click.group(cls=DemoGroup)
def demo() -> None:
    """Start a demo cluster of simulated hosts.

    Controller, agents and portal are the real ones; root, libvirt and a broker are not needed. Without a command, and
    with options alone, it does what `trimtab demo start` does.

    \b
    Example:
      trimtab demo
      trimtab demo kill-host host3
      trimtab demo stop
    """


@demo.command()
@_folder_option
@click.option("--hosts", type=Whole(1, HOSTS_MAX), default=HOSTS, show_default=True, help="How many hosts.")
@click.option(
    "--port",
    type=Whole(1, 65_535),
    default=PORT,
    show_default=True,
    envvar=PORT_VARIABLE,
    show_envvar=True,
    help="The portal's port, of the loopback address.",
)
@click.option("--foreground", is_flag=True, help="Stay in the foreground; Ctrl-C stops the demo.")
@output_option
def start(folder: Path | None, hosts: int, port: int, foreground: bool) -> None:
    """Start the demo and wait until all hosts are up.

    Every start begins with an empty cluster.

    \b
    Example:
      trimtab demo start --hosts 3
    """
    if lacking := [name for name in NEEDED if find_spec(name) is None]:
        raise PermanentError(f"the portal needs {', '.join(lacking)}: install the extra `portal` of Trimtab")
    layout = Layout((folder or default_folder()).absolute(), hosts, port)
    layout.check()
    begun_s = SystemClock().monotonic_s()

    def ready(status: dict[str, Any]) -> None:
        seconds = SystemClock().monotonic_s() - begun_s
        emit({**status, "started_in_s": round(seconds, 1)}, lambda: _started(status, seconds, foreground))

    if foreground:
        _run_here(layout, ready)
        say("stopped")
    else:
        ready(_run_in_background(layout))


def _started(status: dict[str, Any], seconds: float, foreground: bool) -> RenderableType:
    lines = [
        f"{len(status['hosts'])} hosts, a controller and a portal run, after {seconds:.0f} s.",
        "",
        f"  . {short(Path(status['env']))}",
        "  trimtab status",
        "",
        f"Portal: {status['portal']}, account {status['account']}, password {status['password']}",
        f"Logs:   {short(Path(status['logs']))}",
        "Stop:   Ctrl-C" if foreground else "Stop:   trimtab demo stop",
    ]
    return Text("\n".join(lines))


def short(path: Path) -> str:
    """Return a path as people write it: `~` for their own folder."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _step(text: str) -> None:
    if sys.stderr.isatty():
        say(f"{text} ...")


def _run_here(layout: Layout, ready: Callable[[dict[str, Any]], None]) -> None:
    import asyncio

    from sim_backend.demo.supervisor import Demo  # loads all that a controller does: only now

    asyncio.run(Demo(layout, _step).run(ready))


def _run_in_background(layout: Layout) -> dict[str, Any]:
    """Start the process of the demo and return what it says when it is ready. It is ended when this is interrupted.
    Raises what `Demo.run` does."""
    command = [sys.executable, "-P", "-m", "sim_backend.demo", "run"]
    command += [str(layout.folder), str(layout.host_count), str(layout.port)]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise PermanentError(f"{sys.executable} cannot be run: {error.strerror}") from error
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        try:
            ready = _await_ready(process.stdout)
            if ready is None:
                problem = process.stderr.read().decode(errors="replace")
                raise PermanentError(f"the demo ended with status {process.wait()}: {problem}")
        except BaseException:
            process.terminate()
            process.wait()
            raise
    process.returncode = 0  # it lives on; nobody waits for it
    return ready


def _await_ready(lines: IO[bytes]) -> dict[str, Any] | None:
    """Return what the demo says when it is ready; None when it ends without a word. Raises what it says is wrong."""
    for line in lines:
        said = json.loads(line)
        if "ready" in said:
            ready: dict[str, Any] = said["ready"]
            return ready
        if "error" in said:
            problems = [Problem(*words) for words in said["problems"]]
            raise InvalidInput(*problems) if problems else PermanentError(said["error"])
        _step(said["step"])
    return None


@demo.command()
@_folder_option
@output_option
def stop(folder: Path | None) -> None:
    """Stop the demo and remove all its files.

    \b
    Example:
      trimtab demo stop
    """
    layout = _layout(folder)
    where = short(layout.folder)
    try:
        await_end(layout.control_socket, STOP_S)
        done = f"stopped; {where} is removed"
    except NoDemo:
        if not layout.is_left_behind():
            raise
        layout.remove()
        done = f"no demo runs; {where}, which one has left, is removed"
    emit({"stopped": True, "folder": str(layout.folder)}, lambda: Text(done))


@demo.command()
@_folder_option
@output_option
def status(folder: Path | None) -> None:
    """Show the hosts, the processes and the addresses of the demo.

    \b
    Example:
      trimtab demo status
    """
    found = ask(_layout(folder).control_socket, "status")
    hosts = [
        {"host": row["host"], "power": row["power"], "agent_process": f"{row['agent_pid'] or '-'}"}
        for row in found["hosts"]
    ]
    about = {name: value for name, value in found.items() if name != "hosts"}
    shown = {
        name: short(Path(value)) if name in ("folder", "env", "config", "logs") else f"{value}"
        for name, value in about.items()
    }
    emit(found, lambda: Group(record("demo", shown), listing("hosts", hosts, ("host", "power", "agent_process"))))


@demo.command("kill-host")
@click.argument("host")
@_folder_option
@output_option
def kill_host(host: str, folder: Path | None) -> None:
    """Cut the power of a host: its agent and all its VMs are gone at once.

    \b
    Example:
      trimtab demo kill-host host3
    """
    found = ask(_layout(folder).control_socket, "kill-host", host)
    gone = found["vms"]
    lost = f"these VMs are gone: {', '.join(gone)}" if gone else "it had no VM"
    emit(found, lambda: Text(f"{host} is off; {lost}"))


@demo.command("start-host")
@click.argument("host")
@_folder_option
@output_option
def start_host(host: str, folder: Path | None) -> None:
    """Switch a host on again; its agent reports within seconds.

    \b
    Example:
      trimtab demo start-host host3
    """
    found = ask(_layout(folder).control_socket, "start-host", host)
    emit(found, lambda: Text(f"{host} is on"))
