"""The construction that programs bring: models compiled from them."""

import interp.programs.compile  # noqa: F401, registers it; it may be the one that is importing this
