"""python -m interp: the command line, where the folder of its script is not on the path."""

from interp.cli import main

if __name__ == "__main__":
    main()
