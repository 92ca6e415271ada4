"""What a remedy needs that the script does not have yet: an accelerator, where it names one."""

from __future__ import annotations

import re

from ..facts.module import ModuleFacts
from ..findings import CODE, Finding, Severity

_NAMED = re.compile(r"\baccelerator\b")


def followable(finding: Finding, facts: ModuleFacts) -> Finding:
    """
    The finding with a remedy that can be followed in the script as it is.

    What refuses a script writes no accelerator into it, so a remedy that calls one says how to make it. The migration
    then goes on with that one. A script that joins its processes by itself cannot have both.
    """
    if finding.severity is not Severity.BLOCKED:
        return finding
    if "broadcast_object_list(" in finding.remedy:
        line = f"from {facts.abilities.module}.utils import broadcast_object_list"
        head, code, last = finding.remedy.rpartition(CODE)
        named = f"{head}{CODE}{line}\n{code}{last}" if code else f"{finding.remedy}, {line}"
        finding = finding._replace(remedy=named)
    if facts.existing or facts.connects:
        return finding
    if _NAMED.search(finding.remedy) is None:
        return finding
    first = "Create the accelerator first, where the script starts; migrate keeps it:"
    made = f"{CODE}from {facts.abilities.module} import Accelerator\n{CODE}accelerator = Accelerator()"
    between = "\n" if "\n" in finding.remedy else ". "
    return finding._replace(remedy=f"{finding.remedy}{between}{first}\n{made}")
