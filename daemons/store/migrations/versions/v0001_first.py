"""The first tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None
branch_labels = None
depends_on = None

BIG_KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _text(name: str, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable)


def _number(name: str, nullable: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Double, nullable=nullable)


def _whole(name: str, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=nullable)


def _big(name: str, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False)


def _body() -> sa.Column[bytes]:
    return sa.Column("body", sa.LargeBinary, nullable=False)


def _key(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def upgrade() -> None:
    """Create the tables in an empty database."""
    _lead()
    _state()
    _history()
    _samples()


def _lead() -> None:
    op.create_table("lead", _key("id", sa.Integer), _big("term"), _text("controller"), _number("taken_s"))
    op.execute("INSERT INTO lead (id, term, controller, taken_s) VALUES (1, 0, '', 0)")
    op.create_table("terms", _key("term", sa.BigInteger), _text("controller"), _number("taken_s"))


def _state() -> None:
    op.create_table(
        "nodes",
        _key("name", sa.Text),
        *(_text("service"), _text("boot_id"), _flag("off"), _whole("cores", True), _big("memory_mib", True), _body()),
    )
    op.create_table(
        "jobs",
        _key("name", sa.Text),
        *(_text("phase"), _flag("is_over"), _flag("idle"), _text("request"), _big("submission")),
        *(_number("accepted_s"), _number("goal_s", True), _number("finished_s", True)),
        *(_whole("instances"), _big("memory_mib"), _whole("attempt"), _big("revision"), _body()),
    )
    op.create_index("jobs_phase", "jobs", ["phase"])
    op.create_index("jobs_finished_s", "jobs", ["finished_s"])
    op.create_table("control", _key("name", sa.Text), _flag("deciding"), _body())


def _history() -> None:
    op.create_table(
        "decisions",
        _key("number", sa.BigInteger),
        *(_number("at_s"), _big("term"), _text("policy")),
        *(_whole("changes"), _whole("refusals"), _whole("dropped"), _whole("held"), _body()),
    )
    op.create_index("decisions_at_s", "decisions", ["at_s"])
    op.create_table(
        "events",
        sa.Column("id", BIG_KEY, primary_key=True),
        *(_number("at_s"), _text("what"), _text("subject"), _big("term"), _text("detail")),
    )
    op.create_index("events_at_s", "events", ["at_s"])
    op.create_index("events_subject", "events", ["subject", "at_s"])
    op.create_table(
        "actions",
        _key("id", sa.Text),
        *(_number("at_s"), _text("kind"), _text("vm"), _text("node"), _big("term")),
        *(_text("to_node", True), _number("sent_s", True), _number("done_s", True)),
        *(_text("outcome", True), _text("detail", True)),
    )
    op.create_index("actions_at_s", "actions", ["at_s"])
    op.create_index("actions_vm", "actions", ["vm", "at_s"])


def _samples() -> None:
    op.create_table(
        "samples",
        *(_key("node", sa.Text), _key("from_s", sa.Double), _number("span_s"), _whole("readings")),
        *(_number("cpu_frac"), _number("cpu_frac_max"), _number("iowait_frac"), _number("load_1min")),
        *(_number("memory_used_mib"), _number("memory_used_mib_max"), _number("swap_used_mib_max")),
        *(_number("disk_free_mib_min"), _number("disk_busy_s"), _big("disk_read_bytes"), _big("disk_write_bytes")),
        *(_big("net_rx_bytes"), _big("net_tx_bytes")),
    )
    op.create_index("samples_from_s", "samples", ["from_s"])
