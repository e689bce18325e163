"""Where a generated answer starts and ends in a row of tokens."""

from dataclasses import dataclass

from interp.errors import InterpError, quoted


@dataclass(frozen=True)
class Generates:
    """Where a generated answer starts and ends.

    start: the position of the first generated token, or the token after which generation starts (its first occurrence
    in the row). stop: the token that ends an answer, or None. length: the largest number of generated tokens.

    Example: generates = Generates(start="=", stop="[EOS]", length=12)
    """

    start: int | str
    stop: str | None
    length: int

    def __post_init__(self) -> None:
        if isinstance(self.start, bool) or not isinstance(self.start, int | str) or self.start == 0:
            raise InterpError(f"generates: start = {quoted(self.start)} must be a token or a position of at least 1")
        if isinstance(self.length, bool) or not isinstance(self.length, int) or self.length < 1:
            raise InterpError(f"generates: length = {quoted(self.length)} must be a positive integer")
        if self.stop is not None and not isinstance(self.stop, str):
            raise InterpError(f"generates: stop = {quoted(self.stop)} must be a token or None")
