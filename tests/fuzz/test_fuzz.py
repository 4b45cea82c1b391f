"""Ten thousand inputs that are nearly right, and that nothing is left out: `python -m tests.fuzz` runs more of them.

Whatever a file, a message or an option holds, a command ends with words or with the right result within its bounds:
never with a traceback, NaN, more than 500 MiB, a write elsewhere, or not at all.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from shared.protocol.messages import MESSAGES
from tests.fuzz import bases, mutations, options, readers, running, scene, targets
from tests.fuzz.worker import Tally

CASES = 10_000
PARTS = {"messages": ("messages", "cores"), "readers": ("readers",), "options": ("options",)}


@pytest.mark.parametrize("part", PARTS)
def test_words_or_the_right_result(part: str, record_property: Callable[[str, object], None]) -> None:
    many = targets.counts(CASES, PARTS[part])
    summary = running.run([(name, 0, count, 1) for name, count in many.items()])
    record_property("fuzz", summary.words())

    assert not summary.wrong, "\n".join(
        f"python -m tests.fuzz {name} {number}: {what}" for name, number, what in summary.wrong[:20]
    )
    assert sum(tally.cases for tally in summary.tallies.values()) == sum(many.values())


def test_ten_thousand_are_about_ten_thousand() -> None:
    assert sum(targets.counts(CASES).values()) == pytest.approx(CASES, rel=0.05)


def test_every_example_is_a_base_of_a_reader() -> None:
    changed = {file for reader in readers.READERS for file in reader.files}
    whole = {word for reader in readers.READERS for words in (reader.words, *reader.more) for word in words}

    assert [name for name in map(bases.name_of, bases.examples()) if name not in changed | whole] == []


def test_every_path_that_a_command_takes_is_read_by_a_reader_or_written_to() -> None:
    read = {" ".join(("trimtab", *reader.words)) for reader in readers.READERS}

    def is_read(command: options.Command, name: str) -> bool:
        mine = [words for words in read if words.startswith(command.path + " ")]
        return any(
            f"{name} {{}}" in words if name.startswith("-") else "{}" in words or "saved" in words for words in mine
        )

    left = [
        path
        for command in options.commands()
        for path, name in options.paths(command)
        if path not in readers.WRITES and name not in readers.ELSEWHERE and not is_read(command, name)
    ]
    assert left == []


def test_every_message_and_every_command_is_a_target() -> None:
    names = set(targets.targets())

    assert {f"message:{cls.KIND}" for cls in MESSAGES} | {f"core:{cls.KIND}" for cls in MESSAGES} <= names
    assert {"option:trimtab-agent", "option:trimtab-controller", "option:trimtab-portal"} <= names
    assert {"option:trimtab.status", "option:trimtab.sim.place", "option:trimtab-portal.account.add"} <= names


@pytest.mark.parametrize("form", [form for form in mutations.Form if form is not mutations.Form.BINARY])
def test_a_seed_says_what_is_changed(form: mutations.Form) -> None:
    """Given the same seed, then the same file; given others, then most are others, and few are as they were."""
    whole = {
        mutations.Form.TOML: b'a = 1\n[b]\nc = "x"\n',
        mutations.Form.JSON: b'{"a": [1, 2, {"b": "c"}]}',
        mutations.Form.CSV: b"t,x\n0,1\n1,2\n",
        mutations.Form.SWF: b"1 0 -1 900 1 -1 -1 1 900\n",
        mutations.Form.XML: b"<a><b c='1'>d</b></a>",
    }[form]
    made = [mutations.mutated(whole, form, random.Random(seed)) for seed in range(200)]

    assert made == [mutations.mutated(whole, form, random.Random(seed)) for seed in range(200)]
    assert len(set(made)) > 100
    assert made.count(whole) < 20


def ended(status: int = 0, out: str = "", err: str = "", error: str = "") -> scene.Ended:
    return scene.Ended(status, out, err, error)


@pytest.mark.parametrize(
    ("end", "wants_json", "wrong"),
    [
        (ended(out="done"), False, ""),
        (ended(2, err="error: no"), False, ""),
        (ended(1, error="KeyError: 'a'"), False, "KeyError"),
        (ended(1), False, "without a word"),
        (ended(70, err="defect"), False, "exit status 70"),
        (ended(err="RuntimeWarning: divide by zero"), False, "warning"),
        (ended(1, err="a\x1b[31m"), False, "standard error"),
        (ended(out="cost  nan"), False, "prints"),
        (ended(out="cost  -inf \n"), False, "prints"),
        (ended(out="banana, infant"), False, ""),
        (ended(out='{"a": 1}'), True, ""),
        (ended(out='{"a": NaN}'), True, "NaN"),
        (ended(out='{"a": 1} {}'), True, "not one JSON object"),
        (ended(out="[1]"), True, "no object"),
        (ended(130, err="error: interrupted"), False, "exit status 130"),
    ],
)
def test_what_is_wrong_is_seen(end: scene.Ended, wants_json: bool, wrong: str) -> None:
    found = scene.judged(end, wants_json)

    assert wrong in found
    assert bool(found) == bool(wrong)


def test_a_plan_goes_on_behind_the_case_that_ended_its_process() -> None:
    plan = [("a", 0, 10, 2), ("b", 0, 4, 1)]

    assert running.rest(plan, "a", 4) == [("a", 6, 10, 2), ("b", 0, 4, 1)]
    assert running.rest(plan, "a", 8) == [("b", 0, 4, 1)]
    assert running.rest(plan[1:], "b", 3) == []


def test_tallies_add_up_and_keep_the_worst_case() -> None:
    sum_ = Tally("a", cases=3, slowest_s=1.0, slowest=2, peak_kib=10, peak=1)
    sum_.add(Tally("a", cases=4, stopped=1, slowest_s=2.0, slowest=9, peak_kib=5, peak=8, wrong=[(9, "no")]))

    assert (sum_.cases, sum_.stopped, sum_.slowest, sum_.peak, sum_.wrong) == (7, 1, 9, 1, [(9, "no")])


def test_plain_values_are_changed_in_a_copy() -> None:
    value = {"a": [1, {"b": 2.5}], "c": "d"}
    before = json.dumps(value)
    made = [mutations.plain_changed(value, random.Random(seed)) for seed in range(50)]

    assert json.dumps(value) == before
    assert sum(repr(one) != repr(value) for one in made) > 40
