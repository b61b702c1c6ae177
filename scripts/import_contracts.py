"""An import-linter contract that import-linter does not have: some modules import *only* these."""

from __future__ import annotations

import sys
from typing import Any

from importlinter import Contract, ContractCheck, fields, output


class OnlyImportsContract(Contract):
    """Every module of `source_modules` (packages with all that is in them) directly imports nothing
    but modules of `allowed_modules` (likewise) and of itself. The word `stdlib` among the allowed
    stands for the whole standard library."""

    # import-linter puts lists of strings in the place of these.
    source_modules: Any = fields.ListField(subfield=fields.StringField())
    allowed_modules: Any = fields.ListField(subfield=fields.StringField())

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        found: list[tuple[str, str]] = []
        sources = [m for m in graph.modules if _inside(m, self.source_modules)]
        missing = [s for s in self.source_modules if s not in graph.modules]
        allowed = [*self.source_modules, *self.allowed_modules]
        if "stdlib" in allowed:
            allowed += sys.stdlib_module_names
        for module in sorted(sources):
            for imported in sorted(graph.find_modules_directly_imported_by(module)):
                if not _inside(imported, allowed):
                    found.append((module, imported))
        return ContractCheck(
            kept=not found and not missing, metadata={"found": found, "missing": missing}
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        for module in check.metadata["missing"]:
            output.print_error(f"there is no module {module}", bold=False)
        for module, imported in check.metadata["found"]:
            output.print_error(f"{module} may not import {imported}", bold=False)


def _inside(module: str, packages: list[str]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)
