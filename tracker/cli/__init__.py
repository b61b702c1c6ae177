"""The command line: `lowmark`. Every command that shows something has `--json` for scripts.

Exit status: 0 done; 1 refused, or what was given cannot be; 2 wrong usage; 3 `wait` ran out of time;
4 no process of the tracker answered; 5 `wait`: a front is silent, so it will not be reached.
"""

from __future__ import annotations

import gc
import os
import sys

_OF_CERTIFICATES = (
    "--tls-",
    "--config",
    "--set=tls_",
    "tls_",
    "LOWMARK_SERVE_TLS_",
    "LOWMARK_SERVE_CONFIG",
)


def _may_check_certificates() -> bool:
    """Whether this process may be one that lets in whoever has a certificate."""
    return "serve" in sys.argv and any(
        word.startswith(_OF_CERTIFICATES) for word in (*sys.argv, *os.environ)
    )


def main() -> None:
    """Runs a command line. `lowmark local-tracker` is what a pod beside an executor runs: it needs the client alone, and is
    none of the commands that people type."""
    # gRPC, which reads this as it is imported, says on standard error that a connection has ended: that is no news to
    # people. But it alone says why somebody with a wrong certificate is not let in, and both as information.
    if not _may_check_certificates():
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    if sys.argv[1:2] == ["local-tracker"]:
        from local_tracker.agent.main import main as run_local_tracker

        sys.exit(run_local_tracker(sys.argv[2:]))
    gc.disable()  # what is imported stays: it is not gone through while it grows, nor at the end
    try:
        from tracker.cli import app
    except ModuleNotFoundError as missing:  # an executor installs the client alone
        raise SystemExit(
            f"the lowmark command needs {missing.name}: pip install 'lowmark[server]'"
        ) from None
    gc.freeze()
    gc.enable()
    app.main()


__all__ = ["main"]
