"""The command line: `lowmark`. Every command that shows something has `--json` for scripts.

Exit status: 0 done; 1 refused, or what was given cannot be; 2 wrong usage; 3 `wait` ran out of time;
4 no process of the tracker answered; 5 `wait`: a front is silent, so it will not be reached.
"""

from __future__ import annotations

import os

# A connection that ends is no news to people: gRPC would say so on standard error, beside our own logs. Its errors stay.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

try:
    from tracker.cli.app import main
except ModuleNotFoundError as missing:  # an executor installs the client alone
    raise SystemExit(
        f"the lowmark command needs {missing.name}: pip install 'lowmark[server]'"
    ) from None

__all__ = ["main"]
