"""Orders, requests to sleep, doubles, losses and deaths between any two effects: an agent does nothing twice, loses
nothing, and lets its host sleep only when nothing lives on it."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.core.journal import Finished, GuestNoted, JournalState
from shared.ports.effects import Reconnected
from shared.protocol.messages import EventsSeen, Hello
from shared.values.nodes import SleepMode
from shared.values.vms import VmState
from tests.extent import examples
from tests.property.agent_machine import KINDS, VMS, Shell

Step = tuple[str, int, int, str]
KINDS_OF_STEP = (
    *("run", "run", "order", "order", "order", "deliver", "deliver", "deliver", "deliver", "again"),
    *("end", "end", "fail", "guest", "tell", "tell", "read", "read", "confirm", "confirm", "nack", "lost"),
    *("timer", "hello", "seen", "dies", "dies", "kill", "reboot", "compact", "cut"),
    *("ask", "ask", "sleep", "sleep", "sleep", "asked again", "woken", "woken"),
)
STEPS = st.tuples(
    st.sampled_from(KINDS_OF_STEP),
    st.integers(0, 7),
    st.integers(0, 2),
    st.sampled_from(["", "", "", "", "term", "boot", "late"]),
)


def take(shell: Shell, step: Step) -> None:
    """Let one thing happen."""
    what, number, which, flaw = step
    vm = VMS[which]
    if what == "run":
        shell.run(vm)
    elif what == "order":
        shell.make_order(KINDS[number], vm, flaw)
    elif what == "deliver":
        shell.deliver(number)
    elif what == "again" and shell.orders:
        shell.enqueue(shell.orders[-1 - number % len(shell.orders)])
    elif what in ("end", "fail"):
        shell.host.end(vm, well=what == "end")
    elif what == "guest":
        shell.host.guest(vm, (VmState.ENDED, VmState.CRASHED, None)[number % 3])
    elif what in ("tell", "read"):
        (shell.tell if what == "tell" else shell.read)()
    elif what in ("confirm", "nack"):
        shell.confirm(ok=what == "confirm")
    elif what == "lost":
        shell.unanswered.clear()
        shell.feed(Reconnected())
    elif what == "timer":
        shell.next_timer()
    elif what == "hello":
        shell.term += number % 2
        shell.enqueue(Hello(shell.term - number // 4 % 2, shell.events_seen()))
    elif what == "seen":
        shell.enqueue(EventsSeen(shell.term, shell.events_seen()))
    elif what == "dies":
        shell.dies_in = number
    elif what in ("kill", "reboot"):
        (shell.reboot if what == "reboot" else shell.restart)()
    elif what == "compact":
        shell.journal = list(JournalState(shell.journal).compact())
    elif what == "cut":
        shell.alive = False
    else:
        take_sleep(shell, step)
    if not shell.alive and what != "cut":
        shell.restart()


def take_sleep(shell: Shell, step: Step) -> None:
    """One thing about the host's sleep; where something lives on it, `sleep` lets that end first, mostly."""
    what, number, which, flaw = step
    mode = (SleepMode.SUSPEND, SleepMode.OFF)[number % 2]
    if what == "ask":
        shell.ask(mode, flaw)
    elif what == "asked again" and shell.requests:
        shell.enqueue(shell.requests[-1 - number % len(shell.requests)])
    elif what == "sleep":
        if which:
            shell.clear()
        shell.put_to_sleep(mode, ordered=number >= 6)
    elif what == "woken":
        shell.end_sleep(which)


@settings(max_examples=examples(300))
@given(st.lists(STEPS, min_size=15, max_size=70))
def test_nothing_is_done_twice_and_nothing_is_lost(steps: list[Step]) -> None:
    shell = Shell()
    for step in steps:
        take(shell, step)
    shell.calm_down()

    finished = {r.result.action for r in shell.history if isinstance(r, Finished)}
    assert finished == {order.action.id for order in shell.orders}, "every order is answered"
    assert finished <= shell.confirmed, "and every answer is told"
    told = shell.told()
    assert all(count <= shell.host.ends[life] for life, count in told.items()), "what is told is true, and told once"
    assert not shell.host.lingering, "every end is noted and its domain forgotten"
    words = [
        r.result.seq if isinstance(r, Finished) else r.event.seq
        for r in shell.history
        if isinstance(r, GuestNoted) or (isinstance(r, Finished) and r.result.seq)
    ]
    assert words == sorted(set(words)), "sequence numbers grow"


def test_these_steps_do_put_the_host_to_sleep_but_not_with_a_vm_on_it() -> None:
    shell = Shell()
    take(shell, ("run", 0, 0, ""))
    take(shell, ("sleep", 0, 0, ""))
    assert (shell.host.vms["a#0"].state, shell.slept.total()) == (VmState.RUNNING, 0)

    for how in range(3):
        take(shell, ("sleep", how, 1, ""))
        take(shell, ("woken", 0, how, ""))

    assert not shell.host.vms
    assert shell.slept == Counter({"1": 1, "2": 1, "3": 1})
