"""Proves the protocol, moves between groups and changes of a pipeline safe, and that the proof can fail: `python -m tests.proof`.

Every obligation has to be unsatisfiable for both solvers, and every situation has to be there: each step can be taken in
a state that the invariants admit, a whole run announces something, a promise without the other invariants does not keep itself, and
each mutation breaks a promise by a run that is printed as a story. A few runs of the core have to take steps of the system alone
(`python -m tests.proof.bridge` has more). Prints what does not hold. Writes build/proof.json, ends with one line.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict

from scripts.summary import finish
from tests.proof.bridge.runs import hold_a_few
from tests.proof.changes.faults import FAULTS as FAULTS_OF_CHANGES
from tests.proof.changes.situations import SITUATIONS as OF_CHANGES
from tests.proof.fragment import cycle
from tests.proof.groups.faults import FAULTS
from tests.proof.groups.situations import SITUATIONS as OF_GROUPS
from tests.proof.mutations import MUTATIONS, SABOTAGES
from tests.proof.obligations import Proof, Proven, by_cvc5, by_z3, holds
from tests.proof.situations import SITUATIONS, Situation, search
from tests.proof.systems import CHANGES, GROUPS

PLANTED_TIMEOUT_MS = 10_000


def prove(proof: Proof) -> list[Proven]:
    """Each obligation by both solvers, or with a planted fault by z3 alone, and not for long; what does not hold is printed."""
    proven = []
    for obligation in proof.obligations():
        if proof.planted is None:
            each = Proven(obligation.name, *by_z3(obligation), *by_cvc5(obligation))
        else:
            each = Proven(obligation.name, *by_z3(obligation, PLANTED_TIMEOUT_MS))
        proven.append(each)
        if not holds(each):
            print(f"NOT SHOWN: {each}", flush=True)
    return proven


def tell(situation: Situation) -> None:
    """A situation, as a story where it is worth one, or that there is none."""
    said = "" if situation.found else f" NOT FOUND: the solver says {situation.said}."
    print(f"{situation.name}: {situation.says}{said}")
    for line in situation.story:
        print(f"    {line}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("--sabotage", choices=SABOTAGES, help="plants a fault into the system")
    parser.add_argument("--only", nargs="+", default=[], help="steps and situations, by name")
    given = parser.parse_args()
    sabotage, only = given.sabotage, given.only
    began = time.monotonic()
    if sabotage is None:
        proofs = [Proof(None, only), Proof(None, only, GROUPS), Proof(None, only, CHANGES)]
    else:
        proofs = [Proof(MUTATIONS[sabotage])]
    undecided = [cycle(proof.formulas()) for proof in proofs]
    proven = [each for proof in proofs for each in prove(proof)]
    situations = []
    for sought in [*SITUATIONS, *OF_GROUPS, *OF_CHANGES]:
        if not sabotage and (not only or sought.name in only):
            situations.append(search(sought))
            tell(situations[-1])
    held = hold_a_few() if not (sabotage or only) else []
    problems = [f"schedule {each.schedule}: {each.problem}" for each in held if each.problem]
    print(*problems, sep="\n", end="\n" if problems else "", flush=True)
    unsat = sum(map(holds, proven))
    found = [each for each in situations if each.found]
    planted = {*MUTATIONS, *FAULTS, *FAULTS_OF_CHANGES}
    mutations = [each for each in situations if each.name in planted]
    shown: dict[str, object] = {
        "obligations": len(proven),
        "unsat": unsat,
        "unshown": len(proven) - unsat + len(situations) - len(found),
        "decidable": str(not any(undecided)).lower(),
        "mutations": len(mutations),
        "sat": sum(each.found for each in mutations),
        "situations": len(situations) - len(mutations),
        "there": sum(each.found for each in situations if each not in mutations),
        "schedules": len(held),
        "problems": len(problems),
        "z3_s": round(sum(each.z3_s for each in proven), 1),
        "cvc5_s": round(sum(each.cvc5_s for each in proven), 1),
        "seconds": round(time.monotonic() - began, 1),
    }
    details = {
        "proven": [asdict(each) for each in proven],
        "found": [asdict(each) for each in situations],
        "leads_back": undecided,
        "bridge": problems,
    }
    ok = not (any(undecided) or shown["unshown"] or problems or sabotage)
    return finish("proof", ok=ok, shown=shown, details=details)


if __name__ == "__main__":
    sys.exit(main())
