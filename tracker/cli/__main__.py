"""python -m tracker.cli: the command `lowmark`."""

from __future__ import annotations

from tracker.cli import main

if __name__ == "__main__":
    main()
