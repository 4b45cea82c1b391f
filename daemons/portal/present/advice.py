"""What alarms mean and what to do about them, in the words of `daemons.codes`, and which page shows their subject."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from daemons.codes.alarms import ALARMS
from daemons.portal.present.workloads import app_url, job_url


@dataclass(frozen=True, slots=True)
class Advice:
    """What an alarm means, and what to do."""

    means: str
    do: str


NONE = Advice("", "")

# Whose page tells more, by how the code of an alarm begins: of a node, a job, a web application.
_NODE = ("node-", "off-node", "clock-", "setup-", "term-")
_JOB = ("job-",)
_APP = ("web-", "probe-", "balancer-")


def page_of(what: str, subject: str) -> str:
    """Return the page about an alarm's subject, "" if there is none."""
    if what == "plan-waiting":
        return "/decision"
    if what == "vm-missing" or what.endswith("-externally"):
        return f"/vms/one?vm={quote(subject, safe='')}"
    if what.startswith(_NODE):
        return f"/nodes/{quote(subject, safe='')}"
    if what.startswith(_JOB):
        return job_url(subject)
    return app_url(subject) if what.startswith(_APP) and what != "web-instance-blocked" else ""


ADVICE = {each.code: Advice(each.meaning.replace("`", ""), each.action.replace("`", "")) for each in ALARMS}
