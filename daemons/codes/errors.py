"""Errors that commands and daemons report, and exit statuses. A row is code, meaning, what to do, the next command, a
page; what an error is about is what to do with it in general: transient, permanent, or programmer."""

from __future__ import annotations

from daemons.codes.code import Code, Kind, codes

TRANSIENT = "transient"
PERMANENT = "permanent"
PROGRAMMER = "programmer"
_REPORT = "Report it with the traceback in the log."

ERRORS: tuple[Code, ...] = (
    *codes(Kind.ERROR, "Errors", ("error", "Root of all errors; never reported itself."), about="any"),
    *codes(
        Kind.ERROR,
        "Errors",
        ("transient", "Root of the transient errors, and a driver that does not answer now.", "Try again later."),
        (
            "bus-unavailable",
            "The connection to the broker is closed, blocked or was refused.",
            "Check the broker and your account.",
            "systemctl status rabbitmq-server",
            "how-to/troubleshooting.md",
        ),
        (
            "store-unavailable",
            "The store or a journal did not answer, is locked, or its disk is full.",
            "Free disk space, or check the database server.",
            "systemctl status trimtab-controller",
            "reference/store.md",
        ),
        (
            "no-answer",
            "No controller answered in time; the request may still be carried out.",
            "Check that a controller runs and its disk is not full. Look at the result before you repeat the request.",
            "systemctl status trimtab-controller",
            "how-to/troubleshooting.md",
        ),
        (
            "not-yet",
            "The wait ended early: the time limit passed, or something else was requested meanwhile.",
            "Look up how far it is.",
            "trimtab status",
        ),
        about=TRANSIENT,
    ),
    *codes(
        Kind.ERROR,
        "Errors",
        ("permanent", "Root of the permanent errors: change the input or the system before you try again."),
        (
            "stale-term",
            "A store write carried an older term than the store's: another controller leads and the writer stops.",
            "Try again: the new leader answers.",
            "trimtab status",
            "how-to/standby-controller.md",
        ),
        (
            "undecodable",
            "Bytes from the bus are not a message that this version understands.",
            "Compare the versions of both sides.",
            "trimtab --version",
            "how-to/upgrade.md",
        ),
        (
            "invalid-value",
            "A value is out of range; the text names the field and the expected value.",
            "Correct that field.",
        ),
        (
            "invalid-input",
            "A file, key or argument cannot be used; every problem is listed with its place.",
            "Correct what the text lists.",
        ),
        (
            "unknown-policy",
            "No policy of that role is registered under the name; the text lists the registered ones.",
            "Name one of them.",
            "trimtab doctor",
        ),
        (
            "unknown-type",
            "No usable type of environment has the name, or it is for the other workload; the text lists the types.",
            "Name one of them, or install its package.",
            "trimtab env types",
        ),
        (
            "unknown-code",
            "No code has that spelling; the text lists the nearest ones.",
            "Check the spelling.",
        ),
        (
            "infeasible",
            "The request is well-formed but cannot be met on this cluster; the text has the numbers.",
        ),
        about=PERMANENT,
    ),
    *codes(
        Kind.ERROR,
        "Errors",
        ("programmer", "Root of the programmer errors.", _REPORT),
        ("contract-violation", "An implementation of a port or a policy broke its documented contract.", _REPORT),
        about=PROGRAMMER,
    ),
    *codes(
        Kind.ERROR,
        "Ended commands",
        (
            "aborted",
            "A question was not answered with yes; nothing changed.",
            "Repeat it with --yes to skip the question.",
        ),
        ("interrupted", "SIGINT (ctrl-c) ended the command."),
        ("terminated", "SIGTERM ended the command."),
        about="command",
    ),
    *codes(
        Kind.ERROR,
        "Demo",
        ("no-demo", "No demo runs in that folder.", "Start one.", "trimtab demo start", "tutorial.md"),
        ("demo-refused", "The demo does not carry out an order; the text has the reason."),
        about="command",
    ),
    *codes(
        Kind.ERROR,
        "Node setup",
        (
            "wrong-digest",
            "A fetched file does not have the SHA-256 digest that the environment's specification states.",
            "Correct the digest, or restore the file.",
            "trimtab nodes show NODE",
            "how-to/node-reassignment.md#if-it-fails",
        ),
        (
            "systemd-refused",
            "A call to systemd was refused; the text has its words.",
            "Read the agent's log.",
            "journalctl -u trimtab-agent",
        ),
        (
            "systemd-not-allowed",
            "No polkit rule lets the agent's user start or stop the unit.",
            "Add the unit to 60-trimtab-units.rules.",
            "journalctl -u trimtab-agent",
            "reference/permissions.md",
        ),
        (
            "systemd-no-such-unit",
            "The unit is not loaded, has no file, or has no process left.",
            "Install the unit's file on the node.",
            "systemctl status UNIT",
        ),
        (
            "systemd-not-supported",
            "The host or the unit cannot do it, such as freezing without cgroup v2.",
            "Use a host with cgroup v2.",
            "",
            "reference/process.md",
        ),
        (
            "systemd-job-failed",
            "The unit did not start or stop; the text has the job's result.",
            "Read the unit's log.",
            "journalctl -u UNIT",
        ),
        about="agent",
    ),
    *codes(
        Kind.ERROR,
        "Portal",
        (
            "unreachable",
            "No controller answers the portal, or the broker is away.",
            "Check that a controller runs.",
            "systemctl status trimtab-controller",
        ),
        ("refused", "The controller refused a request of the portal; the reply has a code of its own."),
        ("busy", "The portal already has more work waiting than it keeps.", "Try again in a few seconds."),
        ("too-busy", "Too many passwords wait to be checked.", "Try again in a few seconds."),
        (
            "last-provider",
            "Without this account no provider could log in to the portal.",
            "Add another provider first.",
            "trimtab-portal account add NAME --role provider",
            "how-to/portal-accounts.md",
        ),
        (
            "not-understood",
            "Reading a text took longer or more memory than allowed.",
            "Shorten the text.",
        ),
        about="portal",
    ),
)
STATUSES: tuple[Code, ...] = codes(
    Kind.EXIT_STATUS,
    "Exit statuses",
    ("0", "Done. A daemon was asked to stop."),
    ("1", "Refused or infeasible; the message or the JSON has the code.", "Follow the hint on standard error."),
    ("2", "Wrong usage or unreadable input; the message names file, line or key, and the expected value."),
    ("70", "Daemons only: a defect, with a traceback in the log.", "Report it.", "journalctl -u UNIT"),
    (
        "75",
        "Daemons only: restart requested. Another controller leads, a disk is full, or the journal is in use.",
        "Nothing: systemd restarts it. If it repeats, read the line before the end.",
        "journalctl -u UNIT",
        "how-to/running.md",
    ),
    ("130", "Commands only: interrupted (SIGINT)."),
    ("143", "Commands only: terminated (SIGTERM)."),
)
