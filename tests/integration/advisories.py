"""Asks the database OSV which versions of distributions have known vulnerabilities."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

# Where the database answers, unless the variable says otherwise; see its documentation for `querybatch`.
ADDRESS = os.environ.get("TRIMTAB_ADVISORIES", "https://api.osv.dev/v1/querybatch")
LIMIT_S = 20.0
# A database that knows nothing of this one knows nothing: CVE-2024-34064.
KNOWN = ("jinja2", "3.1.2")


class NotAskedError(Exception):
    """The database could not be reached, or what answered is none; the text says why."""


def vulnerabilities(
    versions: Mapping[str, str], address: str = ADDRESS, limit_s: float = LIMIT_S
) -> dict[str, list[str]]:
    """The ids of the advisories for each distribution that has any. Raises NotAskedError."""
    asked = [*versions.items(), KNOWN]
    queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in asked]
    found = _answered(address, {"queries": queries}, limit_s)
    if not isinstance(found, list) or len(found) != len(asked):
        raise NotAskedError(f"{address} does not answer as the database does: one result for each of {len(asked)}")
    ids = [[str(one["id"]) for one in result.get("vulns", ())] for result in found]
    if not ids.pop():
        raise NotAskedError(f"{address} knows of no vulnerability of {' '.join(KNOWN)}: it has no advisories")
    return {name: sorted(known) for name, known in zip(versions, ids, strict=True) if known}


def _answered(address: str, question: Mapping[str, Any], limit_s: float) -> Any:
    request = urllib.request.Request(
        address, json.dumps(question).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=limit_s) as answer:
            return json.load(answer)["results"]
    except (OSError, urllib.error.URLError) as error:
        raise NotAskedError(f"{address} cannot be reached: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise NotAskedError(f"{address} does not answer as the database does: {error!r}") from error
