"""Mangled requests that are steered to what has not been run yet, by the coverage of the product's code.

    PYTHONPATH=DIRECTORY_WITH_ATHERIS python -m tests.fuzz.guided [OPTIONS OF LIBFUZZER]

The choices of `campaign.world` are taken from bytes, which libFuzzer changes. It needs the package atheris, which is
no part of the project: it has wheels for some versions of Python alone. libFuzzer ends at the first failure, and says
in which file the bytes are; `-max_total_time=60` ends it after a minute.
"""

from __future__ import annotations

import importlib
import logging
import sys

REQUESTS = 6
"""Of one world: few, so that what leads somewhere is found again in a longer one."""


def main(arguments: list[str]) -> None:
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["tracker"]):
        from tests.fuzz.campaign import Found, world
    import structlog

    from tests.fuzz.mangling import Told

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    found = Found()

    def one_input(data: bytes) -> None:
        world(found, Told(data), REQUESTS)

    atheris.Setup([sys.argv[0], *arguments], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
