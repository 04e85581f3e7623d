"""Errors a user sees: what went wrong, where, and what to do; and the exit code that goes with each."""


class IrrError(Exception):
    """A failure told in one or two lines.

    Args:
        what: what went wrong and where, one sentence.
        cure: what the user can do about it, one sentence.
    """

    exit_code = 1

    def __init__(self, what: str, cure: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.cure = cure

    def __str__(self) -> str:
        return self.what if self.cure is None else f"{self.what}\n  {self.cure}"


class UsageError(IrrError):
    """The command was called wrongly (exit 2)."""

    exit_code = 2


class DataLost(IrrError):
    """The work was done, but data was lost in an arm that is not declared bounded (exit 3)."""

    exit_code = 3
