"""
Mixed precision by hand: autocast regions and a gradient scaler, understood as one setting or left as they are.

Left as they are they stay right: autocast is local, and a scaler works on gradients that are equal everywhere. They
become the accelerator's only where that changes nothing: every forward pass of a trained model is in a region, all
regions say the same, each use of the scaler is one of its five, and branches without mixed precision do the same. A
region that hangs on the device that was chosen stays: the accelerator is made with its precision before there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.precision import KeptScaler, ScaledTwice, UnlikeBranches
from ...facts.roles import Role
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import method_name
from ..dataflow.values import State, Unit
from ..training.training import Training, whole
from .branches import Branches, find_branches
from .regions import Region, find_regions
from .scalers import Scaler, ScalerUse
from .switches import Switch, Switches

_CLIPS = frozenset({"clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_grad_value"})


@dataclass(eq=False)
class PrecisionSetting:
    """The script's mixed precision as one setting of the accelerator."""

    value: str
    """Source text for ``mixed_precision=``."""
    names: frozenset[str]
    """Names that this text reads."""
    regions: list[Region]
    branches: list[Branches]
    scalers: dict[Unit, ScalerUse] = field(default_factory=dict)


class ManualPrecision:
    """The mixed precision of a script, as it was written."""

    def __init__(self, state: State, reach: Reach, training: Training) -> None:
        self.state, self.reach, self.training = state, reach, training
        self.regions, self.clear = find_regions(state, reach)
        self.scaler = Scaler(state, reach)
        self.branches: list[Branches] = []
        if self.scaler.origins:
            self.scaler.understood()
        if self.regions:
            self.branches = list(find_branches(reach.units, self.regions, self.scaler))

    def precision(self, code: Code | None) -> PrecisionSetting | None:
        """The setting, for an accelerator that is made in some code; None where all of it is better left as it is."""
        mode = self._mode()
        same = [b for b in self.branches if b.same]
        if mode is None or code is None or not self.clear or not self._covers(same) or self.scaler.because:
            return None
        if self._clips_scaled():
            return None
        gone: set[cst.CSTNode] = {b.node.test for b in same}
        gone.update(node for region in self.regions for _, node in (*region.entered, *region.made))
        if not self.scaler.asked_only_by(gone):
            return None
        found = self._value(mode, same, Switches(self.state, self.reach, code))
        if found is None:
            return None
        value, names = found
        return PrecisionSetting(value, names, self.regions, same, self.scaler.uses)

    def told(
        self, precision: PrecisionSetting | None, code: Code | None, asked: str | None
    ) -> Iterator[tuple[Unit, Reason]]:
        """What stays by hand, and why; ``asked`` is the precision that the command line wants."""
        if precision is None and code is not None:
            switches = Switches(self.state, self.reach, code)
            for branches in self.branches:
                if not branches.same and switches.one([self._condition(branches.switch)]) is not None:
                    yield (
                        branches.unit,
                        UnlikeBranches(branches.node),
                    )
        if precision is None and self.scaler.steps():
            yield self.scaler.unit(), self._kept(asked)

    def _kept(self, asked: str | None) -> Reason:
        """What a scaler that stays means."""
        node = next(iter(self.scaler.origins)).node
        because = self.scaler.because or "the accelerator's setting would change the result"
        if asked == "fp16":
            return ScaledTwice(node, because)
        return KeptScaler(node, because)

    def _mode(self) -> str | None:
        """The one precision that all regions ask for."""
        scales = bool(self.scaler.origins)
        modes = {region.mode or ("fp16" if scales else "") for region in self.regions}
        mode = modes.pop() if len(modes) == 1 else ""
        if mode not in ("bf16", "fp16") or scales is not (mode == "fp16"):
            return None  # fp16 without a scaler: the accelerator's fp16 scales, which the script does not
        return mode

    def _clips_scaled(self) -> bool:
        """Whether the script clips gradients that are scaled: the accelerator's clipping takes the scale out first."""
        called = (method_name(record.node) for record in self.state.calls.values())
        names = {method_name(call) for call in self.scaler.methods}
        if names and "unscale_" not in names and any(name in _CLIPS for name in called):
            self.scaler.because = "gradients are clipped before they are unscaled"
        return bool(self.scaler.because)

    def _covers(self, same: list[Branches]) -> bool:
        """Whether every forward pass of a trained model is in a region, or in a branch that is removed."""
        blocks = {unit.names.parents[item] for region in self.regions for unit, item in region.items}
        blocks.update(b.dropped for b in same if b.dropped is not None)
        for call, model in self.training.forwards.items():
            unit = self.state.calls[call].unit
            around = set(unit.names.ancestors(call))
            inside = any(klass.role is Role.MODEL for node, klass in unit.classes.items() if node in around)
            if whole(self.state, model) in self.training.models and not inside and blocks.isdisjoint(around):
                return False
        return True

    def _value(self, mode: str, same: list[Branches], switches: Switches) -> tuple[str, frozenset[str]] | None:
        """The setting as source text, and the names that it reads."""
        asked = [self._of_region(region, same) for region in self.regions]
        if self.scaler.origins:
            made = list(self.scaler.conditions())
            asked.append(made or self._of_uses(same))
        conditions = [self._condition(b.switch) for b in same]
        if not any(asked) and not conditions:
            return f'"{mode}"', frozenset()
        one = switches.one([*(s for group in asked for s in group), *conditions]) if all(asked) else None
        if one is None:
            return None
        known, on = one
        if known.text == "True":
            return f'"{mode}"' if on else '"no"', frozenset()
        on_, off = (mode, "no") if on else ("no", mode)
        return f'"{on_}" if {known.text} else "{off}"', known.names

    def _condition(self, switch: Switch) -> Switch:
        """A switch; where it asks for the scaler, that under which the scaler was made."""
        there = self.scaler.test_of(switch.test)
        made = next(self.scaler.conditions(), None) if there is not None else None
        return switch if made is None else made._replace(on=made.on is (there is switch.on))

    def _of_region(self, region: Region, same: list[Branches]) -> list[Switch]:
        """The conditions under which a region is on."""
        around = [b.switch for b in same if all(_within(u, item, b.node) for u, item in region.items)]
        return [self._condition(switch) for switch in (*region.switches, *around)]

    def _of_uses(self, same: list[Branches]) -> list[Switch]:
        """The condition under which a scaler that is always made is used."""
        around = [[b for b in same if _within(u, call, b.node)] for call, u in self.scaler.methods.items()]
        return [self._condition(b.switch) for found in around for b in found] if all(around) else []


def _within(unit: Unit, node: cst.CSTNode, around: cst.CSTNode) -> bool:
    return around in unit.names.ancestors(node)
