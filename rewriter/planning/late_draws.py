"""What chance decides after ``prepare``, from where on torch's generator differs from process to process."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

import libcst as cst

from ..analysis.dataflow.call_graph import Reach
from ..analysis.dataflow.callees import outside_name
from ..analysis.dataflow.values import Klass, State, Unit
from ..analysis.devices.after_prepare import AfterPrepare, NewLayers
from ..analysis.devices.use_before_prepare import Stands
from ..analysis.syntax.walk import contains
from ..analysis.training.draws import (
    drawn_models,
    plain_draws,
    shuffled_loaders,
    split_draws,
    value_draws,
    weight_draws,
)
from ..analysis.training.weight_noise import WeightNoise, weight_noise
from ..facts.reasons import Reason
from ..facts.reasons.draws import (
    GrownLayers,
    LateSplit,
    MadeRows,
    OrderedRows,
    RedrawnWeights,
    RestingLayers,
    ShakenWeights,
    UnlikeModel,
)
from ..facts.roles import Origin, Role
from ..facts.torch_api import randomness
from .prepare import PreparePlan


def too_late(
    state: State, reach: Reach, plan: PreparePlan, rows: Container[cst.CSTNode]
) -> Iterator[tuple[Unit, Reason]]:
    """The weights, the random splits and the rows (``rows``: what they are made of) that are drawn after the last
    ``prepare`` of a model; what new layers keep of a draw."""
    models = {origin: stands for origin, stands in plan.stands.items() if origin.role is Role.MODEL}
    after = AfterPrepare(reach, models.values())
    for draw in weight_draws(state, reach):
        late = after.site(draw)
        if late is not None and not _seeded_alike(state, reach, late):
            yield state.calls[late].unit, RedrawnWeights(late)
    for draw in split_draws(state, reach):
        late = after.site_again(draw)
        if late is not None and not any(_seeded_alike(state, reach, call) for call in (late, draw)):
            yield state.calls[draw].unit, LateSplit(draw)
    for made in drawn_models(state, reach) if models else ():
        late = after.site_again(made) if all(model.node is not made for model in plan.prepared) else None
        if late is not None and not any(_seeded_alike(state, reach, call) for call in (late, made)):
            yield state.calls[made].unit, _unlike(state.calls[made].unit, made)
    told: set[cst.CSTNode] = set()
    for noise in weight_noise(reach):
        if noise.draw not in told and not noise.models.isdisjoint(models) and after.site(noise.draw) is not None:
            told.add(noise.draw)
            if not _seeded_alike(state, reach, noise.draw):
                yield state.calls[noise.draw].unit, _shaken(state.calls[noise.draw].unit, noise)
    seeds = (call for call, record in state.calls.items() if randomness.seeds(outside_name(record)) == "torch")
    again = any(after.site(seed) is not None for seed in seeds if reach.function_of(seed) in reach.reachable)
    for draw in value_draws(state, reach) if not again else ():
        late = after.site_again(draw) if draw in rows else None
        if late is not None and not any(_seeded_alike(state, reach, call) for call in (late, draw)):
            yield state.calls[draw].unit, _made(state.calls[draw].unit, draw)
    for draw, loader in shuffled_loaders(state, reach) if not again else ():
        if draw in rows and loader not in plan.prepared and after.site_again(draw) is not None:
            yield state.calls[draw].unit, _ordered(state.calls[draw].unit, draw)
    yield from _of_layers(state, reach, models)


def _seeded_alike(state: State, reach: Reach, site: cst.Call) -> bool:
    """Whether a statement before a call in its block seeds all processes alike: ``torch.manual_seed(fold)``."""
    unit = state.calls[site].unit
    statement = unit.names.statement(site)
    block = list(getattr(unit.names.block(statement), "body", ()))
    before = block[: block.index(statement)] if statement in block else []
    for earlier in reversed(before):
        if isinstance(earlier, (cst.For, cst.While)):
            return False  # what a loop draws may differ from process to process
        calls = (n for n in reach.runs(earlier, unit) if isinstance(n, cst.Call) and n in state.calls)
        seeds = (call for call in calls if randomness.seeds(outside_name(state.calls[call])) == "torch" and call.args)
        if any(not contains(seed.args[0], cst.Call) for seed in seeds):
            return True
    return False


def _of_layers(state: State, reach: Reach, models: Mapping[Origin, Stands]) -> Iterator[tuple[Unit, Reason]]:
    """What is said of a layer that a model gets after ``prepare``: nothing moves it, or it keeps a plain tensor of what
    was drawn."""
    layers, told = NewLayers(state, reach, models), set[cst.Call]()
    for model in models:
        found = layers.of(model)
        for site in dict.fromkeys(found.values()) if found and not layers.moved(model) else ():
            yield state.calls[site].unit, _resting(site, state.calls[site].unit)
        for part in (part for part in state.klass if isinstance(part, Origin) and part.node in found):
            assert isinstance(part.node, cst.Call)
            site, kept = found[part.node], next((name for name, _ in plain_draws(state, state.klass[part])), None)
            if kept is not None and site not in told:
                told.add(site)
                yield state.calls[site].unit, _grown(site, state.klass[part], kept)


def _unlike(unit: Unit, made: cst.Call) -> Reason:
    text = unit.names.one_line(made)
    return UnlikeModel(made, text)


def _shaken(unit: Unit, noise: WeightNoise) -> Reason:
    text = unit.names.one_line(noise.draw)
    return ShakenWeights(noise.draw, text, noise.gradients)


def _made(unit: Unit, draw: cst.Call) -> Reason:
    text = unit.names.one_line(draw)
    return MadeRows(draw, text)


def _ordered(unit: Unit, loader: cst.Call) -> Reason:
    text = unit.names.one_line(loader)
    return OrderedRows(loader, text)


def _resting(site: cst.Call, unit: Unit) -> Reason:
    called = unit.names.one_line(site.func)
    return RestingLayers(site, called)


def _grown(site: cst.Call, klass: Klass, kept: str) -> Reason:
    return GrownLayers(site, kept, klass.node.name.value)
