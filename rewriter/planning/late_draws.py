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
from ..facts.roles import Origin, Role
from ..facts.torch_api import randomness
from ..findings import Finding, Severity
from .prepare import PreparePlan


def too_late(
    state: State, reach: Reach, plan: PreparePlan, rows: Container[cst.CSTNode]
) -> Iterator[tuple[Unit, Finding]]:
    """The weights, the random splits and the rows (``rows``: what they are made of) that are drawn after the last
    ``prepare`` of a model; what new layers keep of a draw."""
    models = {origin: stands for origin, stands in plan.stands.items() if origin.role is Role.MODEL}
    after = AfterPrepare(reach, models.values())
    for draw in weight_draws(state, reach):
        late = after.site(draw)
        if late is not None and not _seeded_alike(state, reach, late):
            yield state.calls[late].unit, _redrawn(late)
    for draw in split_draws(state, reach):
        late = after.site_again(draw)
        if late is not None and not any(_seeded_alike(state, reach, call) for call in (late, draw)):
            yield state.calls[draw].unit, _split(draw)
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


def _of_layers(state: State, reach: Reach, models: Mapping[Origin, Stands]) -> Iterator[tuple[Unit, Finding]]:
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


def _redrawn(site: cst.Call) -> Finding:
    return Finding(
        "late-draw",
        site,
        "weights are drawn here after prepare(...), from where on each process draws other numbers: ranks would train "
        "different weights",
        "draw them before the model is prepared; in a loop over folds, build the model and its optimizer in each round,"
        " or let all processes draw the same: torch.manual_seed(fold) before this line",
        Severity.BLOCKED,
        case="weights",
    )


def _unlike(unit: Unit, made: cst.Call) -> Finding:
    text = unit.names.one_line(made)
    return Finding(
        "late-draw",
        made,
        f"`{text}` draws its weights after prepare(...), from where on each process draws other numbers, and it is not "
        "prepared itself: ranks would compute with different weights",
        "build it before the models that are trained; or let all processes draw the same: torch.manual_seed(0) before "
        "this line",
        Severity.BLOCKED,
        case="model",
    )


def _shaken(unit: Unit, noise: WeightNoise) -> Finding:
    text = unit.names.one_line(noise.draw)
    what = "gradients" if noise.gradients else "weights"
    return Finding(
        "late-draw",
        noise.draw,
        f"`{text}` changes {what} after prepare(...), from where on each process draws other numbers: ranks would "
        "train different weights",
        "let all processes draw the same: make generator = torch.Generator(accelerator.device).manual_seed(0) once, "
        "and draw with torch.randn(p.shape, generator=generator, device=accelerator.device)",
        Severity.BLOCKED,
        case="noise",
    )


def _made(unit: Unit, draw: cst.Call) -> Finding:
    text = unit.names.one_line(draw)
    return Finding(
        "late-draw",
        draw,
        f"`{text}` makes rows of the data after prepare(...), from where on each process draws other numbers: ranks "
        "would make different data, and each read a part of its own",
        "draw it before the model is prepared, or by a generator that is the same everywhere: "
        "torch.Generator().manual_seed(0)",
        Severity.REVIEW,
        case="rows",
    )


def _ordered(unit: Unit, loader: cst.Call) -> Finding:
    text = unit.names.one_line(loader)
    return Finding(
        "late-draw",
        loader,
        f"`{text}` is shuffled after prepare(...), from where on each process draws another order, and rows of the "
        "data are chosen by it: ranks would choose different rows",
        "choose them before the model is prepared, or give the loader a generator that is the same everywhere: "
        "generator=torch.Generator().manual_seed(0)",
        Severity.REVIEW,
        case="order",
    )


def _resting(site: cst.Call, unit: Unit) -> Finding:
    called = unit.names.one_line(site.func)
    return Finding(
        "device_placement",
        site,
        f"`{called}(...)` makes layers of the model on the CPU, after prepare(...) has placed the model: on a GPU this "
        "causes a device mismatch",
        "move the model after this line: model.to(accelerator.device)",
        Severity.REVIEW,
        case="late-layers",
    )


def _grown(site: cst.Call, klass: Klass, kept: str) -> Finding:
    return Finding(
        "late-draw",
        site,
        "layers of the model are made here after prepare(...), from where on each process draws other numbers: their "
        f"parameters follow rank 0, but `{kept}` of {klass.node.name.value} is a plain tensor of what the process "
        "itself drew: ranks would compute different functions",
        "let all processes draw the same here: put the line under `with torch.random.fork_rng():`, after "
        "torch.manual_seed(0) in that block",
        Severity.REVIEW,
        case="plain-tensor",
    )


def _split(site: cst.Call) -> Finding:
    return Finding(
        "late-draw",
        site,
        "this random split is drawn after prepare(...), from where on each process draws other numbers: ranks would "
        "split differently, and train on rows that others test on",
        "draw it before the model is prepared, or give it a generator: generator=torch.Generator().manual_seed(0)",
        Severity.BLOCKED,
        case="split",
    )
