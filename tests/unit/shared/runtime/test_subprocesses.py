"""Operators' programs: what is known of how they ended, and what they are given to read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.base.errors import TransientError
from shared.runtime import subprocesses
from shared.runtime.subprocesses import OUTPUT_BYTES_MAX, Ended

SH = "/bin/sh"


def test_a_program_that_ends_in_time_has_its_status() -> None:
    assert subprocesses.run((SH, "-c", "echo yes"), 20.0) == Ended(True, "yes", 0, "yes")
    assert subprocesses.run((SH, "-c", "echo no; exit 2"), 20.0) == Ended(False, "exit status 2: no", 2, "no")
    assert subprocesses.run((SH, "-c", "kill -TERM $$"), 20.0) == Ended(False, "ended by signal 15", -15, "")


def test_one_that_is_killed_has_none() -> None:
    ended = subprocesses.run((SH, "-c", "echo begun; sleep 60"), 0.5)

    assert ended == Ended(False, "killed after 0.5 s: begun", None, "begun")


@pytest.mark.parametrize("printed_bytes_max", [1, 100, 20_000])
def test_as_much_of_the_output_is_kept_as_was_asked_for(printed_bytes_max: int) -> None:
    program = (SH, "-c", "i=0; while [ $i -lt 1000 ]; do echo 0123456789; i=$((i+1)); done; printf end")

    ended = subprocesses.run(program, 20.0, printed_bytes_max=printed_bytes_max)

    assert ended.printed == ("0123456789\n" * 1000 + "end")[-printed_bytes_max:].strip()
    assert len(ended.detail.encode()) <= OUTPUT_BYTES_MAX


@pytest.mark.parametrize("given", [b"", b"secret\n", b"x" * 1_000_000], ids=["nothing", "little", "much"])
def test_it_reads_what_it_is_given_and_then_the_end(given: bytes) -> None:
    ended = subprocesses.run((SH, "-c", "wc -c"), 20.0, reads=given)

    assert ended.printed == str(len(given))


def test_its_input_is_in_no_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret leaves no trace on a disk, also where temporary files could not be written."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))

    ended = subprocesses.run((SH, "-c", "readlink /proc/self/fd/0"), 20.0, reads=b"secret")

    assert ended.printed.startswith("/memfd:")


def test_one_that_does_not_read_is_not_waited_for() -> None:
    assert subprocesses.run(("/bin/true",), 20.0, reads=b"x" * 1_000_000).ok


def test_its_environment_is_the_given_one() -> None:
    ended = subprocesses.run(("/usr/bin/env",), 20.0, {"ONLY": "this"})

    assert ended.printed == "ONLY=this"
    assert subprocesses.run(("/usr/bin/env",), 20.0).printed.count("\n") >= len(os.environ) - 1


def test_one_that_cannot_be_started_is_transient(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match=f"{tmp_path} cannot be run: Permission denied"):
        subprocesses.run((str(tmp_path),), 20.0)
