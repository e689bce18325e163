"""The synthetic tables and figures of the report's tests."""

from report.conftest import frames as frames
from report.conftest import made as made
