"""A fault of `tests/mutations` planted into this process: the same lines are replaced, and the functions that they are in run by them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from types import FunctionType, ModuleType
from typing import Any

from scripts.summary import ROOT
from tests.mutations.mutation import HERE, changed, read_mutation
from tests.simulation.faults import FAULTS


@contextmanager
def planted(name: str) -> Iterator[None]:
    """While this lasts, the core has a fault: a mutation, or one that the simulator's tests plant."""
    if name in FAULTS:
        with FAULTS[name]():
            yield
        return
    mutation = read_mutation(HERE / f"{name}.toml")
    texts = changed(mutation, ROOT)
    replaced = []
    for each in mutation.replacements:
        module = importlib.import_module(each.file.removesuffix(".py").replace("/", "."))
        whole, faulty = _function(module, each.symbol), _function(_run(module, texts[each.file]), each.symbol)  # fmt: skip
        replaced.append((whole, whole.__code__))
        whole.__code__ = faulty.__code__
    try:
        yield
    finally:
        for whole, code in reversed(replaced):
            whole.__code__ = code


def _run(module: ModuleType, text: str) -> ModuleType:
    """A module of that name with another text, which nobody imports."""
    made = ModuleType(module.__name__)
    exec(compile(text, f"{module.__file__} with a fault", "exec"), made.__dict__)
    return made


def _function(module: ModuleType, symbol: str) -> FunctionType:
    found: Any = reduce(getattr, symbol.split("."), module)
    found = found.fget if isinstance(found, property) else found
    assert isinstance(found, FunctionType), f"{symbol} is no function"
    return found
