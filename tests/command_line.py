"""`interp ...` in the test's own process, which has the libraries; tests of what a new process does start one."""

import contextlib
import io
import sys

import pytest

from interp import cli


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(*arguments: str, terminal: bool = False) -> tuple[int, str, str]:
    """As from the shell: exit code, output (to a pipe or a terminal), errors."""
    out, err = Terminal() if terminal else io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["interp", *arguments])
        try:
            code: object = cli.main()
        except SystemExit as stop:
            code = stop.code
    return (code if isinstance(code, int) else 0), out.getvalue(), err.getvalue()
