"""The tree of errors: what was raised in another process is what it was there."""

from __future__ import annotations

import pickle

import pytest

from shared.base.errors import InvalidInput, InvalidValue, Problem, StoreUnavailable, TrimtabError, UnknownPolicy


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("locked"),
        InvalidInput(Problem("a.toml", "what", "else"), Problem("b.toml", "this")),
        UnknownPolicy(Problem("policy", "none of that name")),
        InvalidValue("to_s", -1.0, "0 or above"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_back_from_another_process_as_it_was(error: TrimtabError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))
