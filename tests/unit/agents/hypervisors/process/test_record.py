"""The parts of the driver `process` that need no program: names, command lines, checks, cgroup files, records."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.hypervisors.process import launch, programs, record
from agents.hypervisors.process.cgroups import Hierarchies, Place, blocked_s, mounted, shares_of, weight_of
from agents.hypervisors.process.checks import Capacity, check
from agents.hypervisors.process.machine import cpus_of, node_of
from agents.hypervisors.process.names import LENGTH_MAX, escaped
from agents.hypervisors.process.programs import Here
from agents.hypervisors.process.record import Record, Usage
from agents.hypervisors.process.runner import Cpu, Exit
from agents.hypervisors.workers import Workers
from shared.base.errors import InvalidInput, InvalidValue
from shared.config.agent import AgentConfig, ProcessKeys, Program
from shared.config.toml import load
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.vms import VmSpec, VmState
from tests.support.process_names import unescaped

HERE = Here("n1", "10.0.0.1")
SPEC = VmSpec("job#3", 1, 1, memory_mib=100, vcpus=1, cpu_mhz=500.0, template="p", arguments=("--fast", "a b"))

# --- names -----------------------------------------------------------------------------------------------------------


@given(st.text(min_size=1, max_size=16))
def test_every_name_comes_back(vm: str) -> None:
    name = escaped(vm)
    assert unescaped(name) == vm
    assert name.isascii()
    assert set(name) & set("/.\\ \n\0") == set()


def test_names_are_what_they_look_like() -> None:
    assert escaped("job#0") == "job:230"
    assert escaped("..") == ":2e:2e"
    for wrong in ("", "#" * LENGTH_MAX):
        with pytest.raises(InvalidValue):
            escaped(wrong)


# --- command lines ---------------------------------------------------------------------------------------------------


def test_places_are_filled_in_and_arguments_stay_words() -> None:
    run = ("/bin/true", "--of={job}/{index}", "{vm}@{node}:{address}", "{arguments}", "{}", "${HOME}")
    words = programs.words_of(SPEC, {"p": Program(run)}, HERE)
    assert words == ("/bin/true", "--of=job/3", "job#3@n1:10.0.0.1", "--fast", "a b", "{}", "${HOME}")


def test_a_program_finds_the_environment_it_is_of() -> None:
    run = {"p": Program(("/bin/true", "/images/{environment}/base.qcow2", "{arguments}"))}
    spec = replace(SPEC, environment="night")

    assert programs.words_of(spec, run, HERE)[1] == "/images/night/base.qcow2"
    assert programs.environment_of(spec, HERE, "/out")["TRIMTAB_ENVIRONMENT"] == "night"
    assert programs.environment_of(SPEC, HERE, "/out")["TRIMTAB_ENVIRONMENT"] == ""


@pytest.mark.parametrize("environment", ["", "..", "a/b"])
def test_a_program_for_environments_takes_no_other_workload(environment: str) -> None:
    run = {"p": Program(("/bin/true", "{environment}", "{arguments}"))}
    with pytest.raises(InvalidValue, match="environment"):
        programs.words_of(replace(SPEC, environment=environment), run, HERE)


def test_arguments_are_never_filled_in() -> None:
    spec = replace(SPEC, arguments=("{node}", "{arguments}"))
    assert programs.words_of(spec, {"p": Program(("/bin/true", "{arguments}"))}, HERE)[1:] == spec.arguments


@pytest.mark.parametrize(
    ("allowed", "what"),
    [
        ({}, "none is allowed"),
        ({"q": Program(("/bin/true",))}, "a program of this node: q"),
        ({"p": Program(("/bin/true",))}, "takes no arguments"),
        ({"p": Program(("/bin/absent", "{arguments}"))}, "cannot be run"),
    ],
)
def test_what_is_not_allowed_is_said(allowed: dict[str, Program], what: str) -> None:
    with pytest.raises(InvalidValue, match=what):
        programs.words_of(SPEC, allowed, HERE)


@pytest.mark.parametrize(
    "run", [(), ("true",), ("/bin/true", "x{arguments}"), ("/bin/true", "{nodes}"), ("/bin/{arguments}",)]
)
def test_programs_that_cannot_be_run_as_written_are_refused_at_once(run: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"process\.programs\.p\.run"):
        programs.check({"p": Program(run)})
    programs.check({"p": Program(("/bin/true", "{vm}-{index}", "{arguments}"))})


def test_the_last_line_of_an_output(tmp_path: Path) -> None:
    file = tmp_path / "output"
    assert programs.last_line(str(file)) == ""
    file.write_bytes(b"x" * 9_000 + b"\nout of \x07paper\n\n")
    assert programs.last_line(str(file)) == "out of ?paper"
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert programs.last_line(str(tmp_path / "link")) == ""
    assert programs.last_line(str(tmp_path)) == ""  # a program may put a folder there
    os.mkfifo(tmp_path / "pipe")
    assert programs.last_line(str(tmp_path / "pipe")) == ""


@pytest.mark.parametrize("text", ["", "[]", '{"words": []}', '{"words": ["a"]}', '{"words": [1], "environment": {}}'])
def test_a_launch_file_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "launch.json"
    file.write_text(text)
    with pytest.raises((ValueError, KeyError, TypeError)):
        launch.read(file)


# --- checks ----------------------------------------------------------------------------------------------------------

ROOM = Capacity("n1", 1_000, 1_000.0)


def order(kind: ActionKind, **fields: object) -> Action:
    return Action("a", kind, "n1", vm="job#3", term=1, boot_id="b", expires_at_s=1e12, **fields)  # type: ignore[arg-type]


def kept(state: VmState = VmState.RUNNING, **fields: object) -> Record:
    return replace(Record.of(SPEC, "boot", state, 1), begun=True, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attempt", "mib", "outcome"),
    [(1, 100, Outcome.ALREADY_THERE), (2, 100, None), (2, 1_100, None), (2, 1_101, Outcome.NO_ROOM)],
)
def test_what_is_frozen_of_an_earlier_attempt_gives_way(attempt: int, mib: int, outcome: Outcome | None) -> None:
    spec = replace(SPEC, attempt=attempt, memory_mib=mib)
    answer = check(order(ActionKind.START, generation=2, spec=spec), kept(VmState.SUSPENDED), ROOM)
    assert (answer and answer[0]) == outcome


def test_what_is_frozen_comes_back_whatever_is_free() -> None:
    full = replace(ROOM, free_mib=0)
    frozen = kept(VmState.SUSPENDED)
    assert check(order(ActionKind.RESUME, expects=1, generation=2, spec=SPEC), frozen, full) is None
    assert check(order(ActionKind.RESUME, expects=1, generation=2, from_node="n1"), frozen, full) is None
    answer = check(order(ActionKind.RESUME, expects=1, generation=2, from_node="n2"), frozen, full)
    assert answer == (Outcome.REFUSED, "a frozen program cannot move")


def test_a_program_has_no_definition() -> None:
    defined = replace(SPEC, definition=("<domain/>",))
    for here in (None, kept()):
        for kind, fields in ((ActionKind.UNDEFINE, {"expects": 1}), (ActionKind.START, {"spec": defined})):
            answer = check(order(kind, generation=1, **fields), here, ROOM)
            assert answer is not None
            assert (answer[0], "no definition" in answer[1]) == (Outcome.REFUSED, True)


def test_a_program_is_adopted_whoever_starts_it_with_its_host() -> None:
    spec = replace(SPEC, failover=True)
    assert check(order(ActionKind.ADOPT, generation=1, spec=spec), kept(), ROOM) == (Outcome.OK, "")
    assert check(order(ActionKind.ADOPT, generation=1, spec=spec), replace(kept(), managed=False), ROOM) is None


def test_a_program_cannot_move() -> None:
    answer = check(order(ActionKind.MIGRATE, expects=1, to_node="n2"), kept(), ROOM)
    assert answer == (Outcome.REFUSED, "a program cannot move")


# --- cgroups ---------------------------------------------------------------------------------------------------------

HYBRID = """tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/blkio cgroup rw,blkio 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nsdelegate 0 0
"""


def test_each_controller_is_found_where_it_is() -> None:
    found = mounted(HYBRID)
    both = Place(Path("/sys/fs/cgroup/cpu,cpuacct"), False)
    assert found["cpu"] == found["cpuacct"] == both
    assert found["io"] == Place(Path("/sys/fs/cgroup/blkio"), False)
    assert Hierarchies("/t", found).places["freezer"] == Place(Path("/sys/fs/cgroup/unified"), True)


def test_without_the_cpu_there_is_nothing_to_share() -> None:
    with pytest.raises(InvalidInput, match="no cgroup has cpu, cpuacct, freezer"):
        Hierarchies("/t", {})


def test_groups_of_version_2_are_written_as_the_kernel_reads_them(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu io memory cpuset\n")
    group = Hierarchies("/t", {"unified": Place(tmp_path, True)}).group("p-x")
    group.make()
    folder = tmp_path / "t" / "p-x"
    for name in ("cpu.weight", "cpu.max", "memory.max", "cpuset.cpus", "cgroup.freeze", "cgroup.procs"):
        (folder / name).write_text("")
    (folder / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    (folder / "io.stat").write_text("8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=1 wbytes=2 rios=1\n")
    group.set_cpu(Cpu(250.0, 1.5), 1_000.0)
    assert group.set_memory(3)
    assert group.set_cpus("0-1")
    group.freeze(True)
    wanted = {"cpu.weight": "2500", "cpu.max": "150000 100000", "memory.max": str(3 << 20), "cpuset.cpus": "0-1"}
    assert {name: (folder / name).read_text() for name in wanted} == wanted
    assert (folder / "cgroup.freeze").read_text() == "1"
    assert group.usage() == Usage(1.5, 11, 22)
    (folder / "io.pressure").write_text(
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=9\n"
    )
    assert group.usage() == Usage(1.5, 11, 22, 2.5)
    assert group.entrances == (str(folder / "cgroup.procs"),)


def test_a_process_tells_how_long_the_disk_kept_it_waiting(tmp_path: Path) -> None:
    """Given the file of a process whose name has spaces and brackets, then field 42 is found; of one that is gone, or
    of a kernel that does not have it, nothing."""
    stat = tmp_path / "stat"
    fields = [str(number) for number in range(3, 53)]
    stat.write_text(f"7 (a) b (c) {' '.join(fields)}\n")
    assert blocked_s(stat) == 42 / os.sysconf("SC_CLK_TCK")
    stat.write_text("7 (a) R 1 2")
    assert blocked_s(stat) == blocked_s(tmp_path / "gone") == 0.0


def test_what_was_used_before_is_not_used_again() -> None:
    assert Usage(3.0, 30, 40, 2.0).since(Usage(1.0, 10, 10, 0.5)) == Usage(2.0, 20, 30, 1.5)


def test_weights_are_in_proportion_and_within_what_the_kernel_takes() -> None:
    assert [weight_of(mhz, 4_000.0) for mhz in (0.0, 1.0, 1_000.0, 4_000.0, 9_000.0)] == [1, 2, 2_500, 10_000, 10_000]
    assert [shares_of(mhz) for mhz in (0.0, 1_000.4, 1e9)] == [2, 1_000, 262_144]


# --- the rest --------------------------------------------------------------------------------------------------------


def test_a_record_comes_back_and_a_torn_one_is_none(tmp_path: Path) -> None:
    one = kept(VmState.CRASHED, used=Usage(1.5, 2, 3), before=Usage(0.5), cap_mhz=100.0)
    record.write(tmp_path / "x", one)
    assert record.read(tmp_path / "x") == one
    status = one.status(one.used, "", "10.0.0.1")
    assert (status.cpu_time_s, status.disk_read_bytes, status.address) == (1.0, 2, "10.0.0.1")
    (tmp_path / "x" / record.FILE).write_text('{"vm": "job#3"}')
    assert record.read(tmp_path / "x") is None
    assert record.read(tmp_path / "y") is None


@pytest.mark.parametrize(
    ("status", "detail"), [(0, "exit status 0"), (-9, "ended by signal 9"), (None, "nobody saw how it ended")]
)
def test_ends_in_words(status: int | None, detail: str) -> None:
    assert Exit(status).detail == detail


def test_the_machine_tells_what_the_configuration_does_not(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nmodel name\t: Epyc\ncpu MHz\t\t: 2596.140\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal:       24684096 kB\n")
    node = node_of("n1", ProcessKeys(cpus="0-2,5", programs={"burn": Program(("/b",))}), str(tmp_path))
    assert node.templates == ("burn",)
    assert (node.cores, node.core_mhz, node.memory_mib, node.cpu_model) == (4, 2596.14, 24105, "Epyc")
    assert node.abilities == ()
    assert node.freezes
    cpufreq = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq"
    cpufreq.mkdir(parents=True)
    (cpufreq / "cpuinfo_max_freq").write_text("3400000\n")
    assert node_of("n1", ProcessKeys(), str(tmp_path)).core_mhz == 3400.0
    (cpufreq / "base_frequency").write_text("2100000\n")
    assert node_of("n1", ProcessKeys(), str(tmp_path)).core_mhz == 2100.0
    said = node_of("n1", ProcessKeys(cores=1, core_mhz=500.0, memory_mib=7), str(tmp_path))
    assert (said.cores, said.core_mhz, said.memory_mib) == (1, 500.0, 7)


def test_a_machine_without_a_clock_must_be_told(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1024 kB\n")
    with pytest.raises(InvalidInput, match=r"process\.core_mhz"):
        node_of("n1", ProcessKeys(), str(tmp_path))


def test_lists_of_cpus() -> None:
    assert cpus_of("") == frozenset()
    assert cpus_of("0-2,5,7-7") == {0, 1, 2, 5, 7}


def test_so_many_operations_at_once_and_no_more() -> None:
    workers, gate, ready = Workers("test", 2), threading.Semaphore(0), threading.Semaphore(0)
    done: list[int] = []

    def task(number: int) -> None:
        ready.release()
        assert gate.acquire(timeout=10)
        done.append(number)
        ready.release()

    for number in range(3):
        workers.do(lambda number=number: task(number))  # type: ignore[misc]
    for _ in range(2):
        assert ready.acquire(timeout=10)
    assert not ready.acquire(timeout=0.05)
    gate.release(3)
    for _ in range(4):
        assert ready.acquire(timeout=10)
    assert sorted(done) == [0, 1, 2]


def test_the_example_is_a_configuration() -> None:
    config = load(Path("examples/agent-process.toml"), AgentConfig)
    programs.check(config.process.programs)
    assert config.hypervisor.driver == "process"
