"""The accelerator's way through a program, as it is found: its home, the code that it reaches, what changes for it."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.values import Unit
from ..analysis.devices.device_names import DeviceName
from ..analysis.syntax.scopes import Binding
from ..facts.accelerator import HandDown, Handing, Home


@dataclass(eq=False)
class Way:
    """Where the accelerator is made and which code it reaches."""

    home: tuple[Unit, Home] | None = None
    code: Code | None = None
    """The code whose statement makes it."""
    reaches: set[Code] = field(default_factory=set)
    hand_downs: list[tuple[Unit, HandDown]] = field(default_factory=list)
    handings: list[tuple[Unit, Handing]] = field(default_factory=list)
    replaced: set[Binding] = field(default_factory=set)
    """Device variables (and parameters) that are gone: their reads take the accelerator's device."""
    redefined: list[tuple[Unit, DeviceName]] = field(default_factory=list)
    """Device variables that other modules read: they are given the accelerator's device."""
    stores: dict[cst.FunctionDef, Unit] = field(default_factory=dict)
    """Constructors that are handed the accelerator and keep it for the methods of their object."""
    spelled: dict[Code, str] = field(default_factory=dict)
    """What the object is called, in code that reads the accelerator from it: ``self``."""
    early_stores: set[cst.FunctionDef] = field(default_factory=set)
    """Constructors whose base class needs the accelerator already."""
    given_back: tuple[Unit, cst.CSTNode, str] | None = None
    """Where an object takes the accelerator's device instead of what its base class has chosen: before which statement,
    and in what words."""
    handed: bool = False
    """It is a global that exists only if the file is run as a script. A file that imports a function would not have it,
    so functions get it as an argument all the same."""
    joins: bool = False
    """The accelerator is made where a script that distributes itself joins its processes."""
    idle: list[Code] = field(default_factory=list)
    """Functions that nothing calls any more, because the accelerator does what they did."""
    dropped: list[tuple[Unit, cst.CSTNode]] = field(default_factory=list)
    """Parameters and arguments for such numbers that go."""
    given_up: set[Binding] = field(default_factory=set)
    """Parameters for the number of the process whose place the accelerator takes."""
    after: set[Code] = field(default_factory=set)
    """Functions that run only after the home, in the script's own process."""
    behind: set[Code] = field(default_factory=set)
    """Those of them that do not see the accelerator where it is made, given it or not."""
