"""Numbers in options: finite, within bounds, plainly written; anything else ends with status 2, the option named."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from daemons.cli.main import main
from daemons.cli.numbers import Number, Whole, plain_number

WRONG = ("nan", "NaN", "inf", "-inf", "1e999", "1_0", "\u0661\u0660", "", "x", "9" * 400, "-" + "9" * 400)


def options(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Parameter]]:
    """Every option and argument of every command."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from options(command, (*words, name))
        for parameter in command.params:
            yield " ".join((*words, name, parameter.opts[0])), parameter


NUMBERS = {
    name: parameter
    for name, parameter in options(main)
    if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType)
}


def test_every_number_has_one_of_the_two_types() -> None:
    """Also those that click guesses from a default."""
    assert len(NUMBERS) > 50
    assert [name for name, parameter in NUMBERS.items() if not isinstance(parameter.type, Number | Whole)] == []


@pytest.mark.parametrize("name", NUMBERS)
def test_no_number_takes_what_is_none(name: str) -> None:
    """Whatever the option."""
    for text in WRONG:
        with pytest.raises(click.BadParameter, match="expected a") as refused:
            NUMBERS[name].type.convert(text, NUMBERS[name], None)
        assert len(refused.value.message) < 160


def test_bounds_belong_to_the_range_unless_it_is_open() -> None:
    """And both are told."""
    assert [Number(1.0, 2.0).convert(text, None, None) for text in ("1", " 1.5", "2e0")] == [1.0, 1.5, 2.0]
    assert Whole(1, 3).convert("3", None, None) == 3
    with pytest.raises(click.BadParameter, match="'0': expected a number above 0 and up to 1"):
        Number(0.0, 1.0, above=True).convert("0", None, None)
    with pytest.raises(click.BadParameter, match="'4': expected a whole number, 1 to 3"):
        Whole(1, 3).convert("4", None, None)
    with pytest.raises(click.BadParameter, match="expected a whole number, 0 or above"):
        Whole(0).convert("-1", None, None)


def test_numbers_within_words_are_read_alike() -> None:
    """As `--theta 0.9,0.99` has them."""
    assert plain_number("0.9") == 0.9
    assert all(number != number for number in map(plain_number, ("1_0", "\u0661", "x", "")))


@pytest.mark.parametrize(
    "words",
    [
        ("env", "advise", "--max-turnaround-factor", "nan"),
        ("env", "advise", "--price-per-node-hour", "nan"),
        ("sim", "days", "x.swf", "--prices", "x.csv", "--from", "2022-06-11", "--confidence", "nan"),
        ("sim", "days", "x.swf", "--prices", "x.csv", "--from", "2022-06-11", "--factor", "-1"),
        ("sim", "days", "x.swf", "--prices", "x.csv", "--from", "2022-06-11", "--first-day", "1" + "0" * 400),
        ("sim", "run", "--web-load", "nan"),
        ("sim", "assure", "x.csv", "--target-utilisation", "nan"),
        ("sim", "assure", "x.csv", "--theta", "nan"),
        ("load", "x.toml", "--speed", "nan"),
        ("status", "--timeout", "nan"),
    ],
)
def test_the_option_is_named(words: tuple[str, ...]) -> None:
    """Before anything is read or asked."""
    outcome = CliRunner().invoke(main, list(words))

    assert outcome.exit_code == 2, outcome.output
    assert words[-2] in outcome.stderr
    assert "expected" in outcome.stderr
