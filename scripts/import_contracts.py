"""An import-linter contract that import-linter does not have: some modules import *only* these."""

from __future__ import annotations

import sys
from typing import Any

from importlinter import Contract, ContractCheck, fields, output


class OnlyImportsContract(Contract):
    """The modules of `source_modules`, with all that is in them, directly import nothing but each
    other and `allowed_modules`: those alone, or with `.**` also all that is in them. `stdlib` among
    the allowed stands for the whole standard library."""

    # import-linter puts lists of strings in the place of these.
    source_modules: Any = fields.ListField(subfield=fields.StringField())
    allowed_modules: Any = fields.ListField(subfield=fields.StringField())

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        patterns = [f"{source}.**" for source in self.source_modules]
        allowed = [*patterns, *self.allowed_modules]
        if "stdlib" in allowed:
            allowed += sys.stdlib_module_names
        found = [
            (module, imported)
            for module in sorted(graph.modules)
            if _matches(module, patterns)
            for imported in sorted(graph.find_modules_directly_imported_by(module))
            if not _matches(imported, allowed)
        ]
        missing = [source for source in self.source_modules if source not in graph.modules]
        return ContractCheck(
            kept=not found and not missing, metadata={"found": found, "missing": missing}
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        for module in check.metadata["missing"]:
            output.print_error(f"there is no module {module}", bold=False)
        for module, imported in check.metadata["found"]:
            output.print_error(f"{module} may not import {imported}", bold=False)


def _matches(module: str, patterns: list[str]) -> bool:
    for pattern in patterns:
        package = pattern.removesuffix(".**")
        if module == package or (package != pattern and module.startswith(package + ".")):
            return True
    return False
