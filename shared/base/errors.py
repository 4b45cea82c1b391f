"""The one tree of errors: transient (try again), permanent (someone must change something), programmer (our fault).

Every class says when it is raised and carries a stable `code` that travels on the wire and in `--output json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


class TrimtabError(Exception):
    """Root of every error that Trimtab raises on purpose."""

    code: ClassVar[str] = "error"


class TransientError(TrimtabError):
    """The same call may succeed later without anyone changing anything."""

    code: ClassVar[str] = "transient"


class PermanentError(TrimtabError):
    """The same call will fail again until its input or the system is changed."""

    code: ClassVar[str] = "permanent"


class ProgrammerError(TrimtabError):
    """A contract inside Trimtab was broken; never caused by a user's input."""

    code: ClassVar[str] = "programmer"


class BusUnavailable(TransientError):
    """The connection to the broker is closed, blocked or was refused."""

    code: ClassVar[str] = "bus-unavailable"


class StoreUnavailable(TransientError):
    """The store did not answer, is locked or its disk is full."""

    code: ClassVar[str] = "store-unavailable"


class StaleTerm(PermanentError):
    """A store write carried a term older than the store's: another controller leads, the writer must stop."""

    code: ClassVar[str] = "stale-term"


class CodecError(PermanentError):
    """Bytes are not a message that this version understands; the only error the codec raises."""

    code: ClassVar[str] = "undecodable"


class InvalidValue(PermanentError):
    """A value object was given something outside its stated range; names the field and what would be right."""

    code: ClassVar[str] = "invalid-value"

    def __init__(self, field: str, got: object, expected: str) -> None:
        super().__init__(f"{field} = {got!r}: expected {expected}")
        self.field, self.got, self.expected = field, got, expected

    def __reduce__(self) -> tuple[type[InvalidValue], tuple[str, object, str]]:
        """Preserve the error when it is passed to another process."""
        return type(self), (self.field, self.got, self.expected)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a user's input: where (file, line or key), what was wrong, what would be right."""

    where: str
    what: str
    expected: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f" (expected {self.expected})" if self.expected else "")


class InvalidInput(PermanentError):
    """A user's file, key or argument cannot be used; carries every problem found. Exit status 2."""

    code: ClassVar[str] = "invalid-input"

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class UnknownPolicy(InvalidInput):
    """No policy of that role is registered under the name given."""

    code: ClassVar[str] = "unknown-policy"


class UnknownType(InvalidInput):
    """No type of environment is registered under the name given, it cannot be loaded, or is for the other workload."""

    code: ClassVar[str] = "unknown-type"


class Infeasible(PermanentError):
    """What was asked is well-formed but cannot be done on this cluster. Exit status 1."""

    code: ClassVar[str] = "infeasible"


class ContractViolation(ProgrammerError):
    """An implementation of a port or a policy broke its documented contract."""

    code: ClassVar[str] = "contract-violation"
