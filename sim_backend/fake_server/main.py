"""`python -m sim_backend.fake_server`: serve a fake cluster, or (`ctl`) send commands to a running server."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Sequence

from shared.base.errors import ContractViolation, InvalidInput, InvalidValue, Problem, TrimtabError
from shared.values.actions import ActionKind
from shared.values.nodes import Node
from shared.values.operation_costs import COSTS, OperationCosts
from sim_backend.fake_server.control import FakeControl
from sim_backend.fake_server.server import FakeServer
from sim_backend.fake_server.wire import Control, How, Order

REFUSED, USAGE = 1, 2
NODE_FORM = "NAME:CORESxMHZ:MIB[:RESERVE_MIB]"
_NODE = re.compile(r"([\w-]+):(\d+)x(\d+(?:\.\d+)?):(\d+)(?::(\d+))?", re.ASCII)


def parse_nodes(text: str) -> list[Node]:
    """Parse nodes in `NODE_FORM`, separated by commas. Raises InvalidInput with every problem found."""
    nodes: list[Node] = []
    problems: list[Problem] = []
    for part in text.split(","):
        found = _NODE.fullmatch(part)
        try:
            if found is None:
                raise InvalidValue("node", part, NODE_FORM)
            name, cores, core_mhz, memory_mib, reserve_mib = found.groups(default="0")
            nodes.append(
                Node(name, int(cores), float(core_mhz), memory_mib=int(memory_mib), reserve_mib=int(reserve_mib))
            )
        except InvalidValue as error:
            problems.append(Problem("--nodes", str(error)))
    names = [node.name for node in nodes]
    problems += [Problem("--nodes", f"{name} twice") for name in sorted({n for n in names if names.count(n) > 1})]
    if problems:
        raise InvalidInput(*problems)
    return nodes


def parse_costs(text: str) -> OperationCosts:
    """Parse a named model, or four numbers START_S,SUSPEND,RESUME,MIGRATE (the last three in seconds per MiB)."""
    if text in COSTS:
        return COSTS[text]
    try:
        start_s, suspend, resume, migrate = (float(part) for part in text.split(","))
        return OperationCosts(
            start_s=start_s, suspend_s_per_mib=suspend, resume_s_per_mib=resume, migrate_s_per_mib=migrate
        )
    except (ValueError, InvalidValue) as error:
        expected = f"{', '.join(COSTS)} or four numbers START_S,SUSPEND,RESUME,MIGRATE (s per MiB)"
        raise InvalidInput(Problem("--costs", f"is {text!r}", expected)) from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Exit status 0: done; 1: refused; 2: wrong usage. Problems are written to standard error."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _control(given[1:]) if given[:1] == ["ctl"] else _serve(given)
    except (InvalidInput, InvalidValue, ContractViolation) as error:
        sys.stderr.write(f"{error}\n")
        return USAGE
    except TrimtabError as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED


def _serve(given: list[str]) -> int:
    parser = argparse.ArgumentParser("fake_server", description="Serve a fake cluster until SIGTERM; see also: ctl -h.")
    parser.add_argument("--socket", required=True, help="path of the Unix socket")
    parser.add_argument("--nodes", required=True, help=f"{NODE_FORM},...")
    parser.add_argument("--costs", default="none", help="none, paper, or START_S,SUSPEND,RESUME,MIGRATE (s per MiB)")
    parser.add_argument("--time-factor", type=float, default=1.0, help="how much faster than real; 0: only by advance")
    options = parser.parse_args(given)
    server = FakeServer(
        options.socket, parse_nodes(options.nodes), parse_costs(options.costs), time_factor=options.time_factor
    )
    server.open()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    _say({"socket": str(server.path), "pid": os.getpid()})
    server.run()
    return 0


def _control(given: list[str]) -> int:
    options = _control_parser().parse_args(given)
    fields = {name: value for name, value in vars(options).items() if name != "socket" and value is not None}
    control = FakeControl(options.socket)
    try:
        answer = control.do(Control(**{**fields, "order": Order(options.order)}))
    finally:
        control.close()
    _say(answer)
    return REFUSED if answer.get("off") is False else 0


def _control_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("fake_server ctl", description="Prints the answer as one JSON object.")
    parser.add_argument("--socket", required=True, help="path of the server's socket")
    orders = parser.add_subparsers(dest="order", required=True, metavar="ORDER")

    def order(which: Order, summary: str, *names: str) -> argparse.ArgumentParser:
        made = orders.add_parser(which.value, help=summary, description=summary)
        for name in names:
            made.add_argument(name)
        return made

    order(Order.STATE, "print what is true")
    order(Order.WORK, "set what the guests of a job really do", "job", "template")
    order(Order.LOAD, "guests without a template share so much load", "job").add_argument("mhz", type=float)
    failing = order(Order.FAIL_NEXT, "let the next operation on a node fail", "node")
    failing.add_argument("--how", type=How, choices=list(How), default=How.REFUSE)
    failing.add_argument("--kind", type=ActionKind, choices=list(ActionKind))
    failing.add_argument("--vm")
    order(Order.CLEAR_FAILURES, "forget failures that have not happened yet", "node")
    order(Order.LOSE_VM, "a live VM disappears", "node", "vm")
    order(Order.CRASH_VM, "a live VM stops and stays defined", "node", "vm")
    order(Order.HOST_DIES, "cut a host's power", "node")
    order(Order.HOST_RETURNS, "bring a host up again", "node")
    order(Order.FENCE, "cut a host's power; exit status 0 when it is proven off", "node")
    order(Order.PART, "two hosts do not reach each other any more", "node", "peer")
    healing = order(Order.HEAL, "two hosts, or all, reach each other again")
    healing.add_argument("node", nargs="?")
    healing.add_argument("peer", nargs="?")
    order(Order.ADVANCE, "move a time that stands still").add_argument("seconds", type=float)
    return parser


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
