"""The words that documentation, help and pages do not use, and what to write instead (docs/adr/0037)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

INSTEAD: Mapping[str, str] = {
    r"told|tells?|telling": "reports, notifies, confirms, prints",
    r"whoever": "anyone who; or name the actor",
    r"anew|afresh": "again; restarts, is requeued",
    r"heeds?|heeded": "follows, uses",
    r"mend(s|ed|ing)?": "fix, repair",
    r"of ours": "managed",
    r"in hand": "managed",
    r"who leads": "the leader",
    r"unhappiest|worst off|better off|worse off": "lowest utility",
    r"gives? way|gave way": "is preempted",
    r"lets? go of": "release",
    r"hands[- ]o(ff|n)": "reconciliation paused or resumed",
    r"out of sight": "missing",
    r"silent nodes?|node silent|node-silent": "unreachable node",
    r"under way": "in progress",
    r"by itself": "automatically; or name the actor",
    r"in earnest": "leave it out",
    r"what becomes of": "the lifecycle of",
    r"is seen to|sees to it": "name the actor and the act",
    r"of her own|of his own": "its own",
}
BANNED = re.compile("|".join(rf"\b(?:{words})\b" for words in INSTEAD), re.IGNORECASE)


def banned_words(text: str) -> Iterator[str]:
    """Yield each banned word of a text, with what to write instead."""
    for found in BANNED.finditer(" ".join(text.split())):
        for words, instead in INSTEAD.items():
            if re.fullmatch(words, found.group(), re.IGNORECASE):
                yield f"{found.group()!r}: write {instead}"
