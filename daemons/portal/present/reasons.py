"""Reasons of decisions in words: what each means, and what would lift it where something is not done. The words are
those of `daemons.codes`, as parts of sentences."""

from __future__ import annotations

from dataclasses import dataclass

from daemons.codes.reasons import REASONS


@dataclass(frozen=True, slots=True)
class Words:
    """What a reason means; what would lift it ("": it hinders nothing)."""

    means: str
    lifts: str = ""


UNKNOWN = Words("a reason of the policy's own", "see the documentation of the policy")


def part(sentence: str) -> str:
    """Return a sentence as a part of another: without full stop and code marks, in lower case unless it begins with an
    abbreviation."""
    bare = sentence.removesuffix(".").replace("`", "")
    return bare if bare[1:2].isupper() else f"{bare[:1].lower()}{bare[1:]}"


WORDS: dict[str, Words] = {each.code: Words(part(each.meaning), part(each.action)) for each in REASONS}


def words_of(code: str) -> Words:
    """Return the words for a reason's code."""
    return WORDS.get(code, UNKNOWN)
