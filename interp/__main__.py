"""The command line as `python -m interp`, for when the `interp` script is not on the path."""

from interp.cli import main

if __name__ == "__main__":
    main()
