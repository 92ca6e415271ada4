"""torchdata's StatefulDataLoader: recognised where it is installed, never needed, and never one batch ahead."""

from __future__ import annotations

import copy
import pickle
import sys
from types import ModuleType

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from torchlift.runtime import Accelerator, CheckpointError, DataLoaderConfiguration, skip_first_batches
from torchlift.runtime.checkpoint.loaders import load_loader_state
from torchlift.runtime.data import loader as loaders
from torchlift.runtime.data.torchdata import stateful_class
from torchlift.runtime.data_loader import DataLoaderDispatcher, DataLoaderShard, SkipDataLoader, prepare_data_loader

ROWS = list(range(10))


@pytest.fixture(autouse=True)
def classes_made_anew(monkeypatch):
    monkeypatch.setattr(loaders, "_CLASSES", {})
    stateful_class.cache_clear()
    yield
    stateful_class.cache_clear()


@pytest.fixture(params=["stand-in", "torchdata"])
def theirs(request, monkeypatch):
    """torchdata's class; and one in its place of which nothing may ever run."""
    if request.param == "torchdata":
        return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def never(*_):
        raise AssertionError("torchdata was run")

    names = ("__init__", "__iter__", "_get_iterator", "state_dict", "load_state_dict")
    package, module = ModuleType("torchdata"), ModuleType("torchdata.stateful_dataloader")
    module.StatefulDataLoader = type("StatefulDataLoader", (DataLoader,), dict.fromkeys(names, never))
    monkeypatch.setitem(sys.modules, "torchdata", package)
    monkeypatch.setitem(sys.modules, "torchdata.stateful_dataloader", module)
    return module.StatefulDataLoader


class Twice(DataLoader):
    """Of a script: hands out every batch twice."""

    def __iter__(self):
        for batch in super().__iter__():
            yield from (batch, batch)


def stateful():
    return Accelerator(dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))


def rows(loader):
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("kind", [DataLoader, Twice])
def test_a_prepared_loader_with_a_state_is_recognised(theirs, kind):
    plain = kind(ROWS, batch_size=4)
    loader = stateful().prepare(plain)
    assert isinstance(loader, theirs) and isinstance(loader, kind) and type(loader).__name__ == kind.__name__
    assert rows(loader) == rows(plain) and len(loader) == len(plain) == 3
    assert rows(skip_first_batches(loader, 2)) == rows(plain)[2 * (1 + (kind is Twice)) :]
    for other in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert isinstance(other, theirs) and rows(other) == rows(plain)
    assert loader.snapshot_every_n_steps == 1
    assert not isinstance(Accelerator().prepare(plain), theirs), "nobody has asked for a state"


@pytest.mark.parametrize("workers", [0, 2])
def test_its_state_is_our_own(theirs, workers):
    first, second = (stateful().prepare(DataLoader(ROWS, 3, shuffle=True, num_workers=workers)) for _ in range(2))
    batches = iter(first)
    next(batches)
    second.load_state_dict(first.state_dict())
    assert second.state_dict()["position"] == 1
    assert rows(second) == [batch.tolist() for batch in batches]


def test_torchdata_is_not_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchdata.stateful_dataloader", None)
    loader = stateful().prepare(DataLoader(ROWS, 4))
    assert stateful_class() is None and rows(loader) == rows(DataLoader(ROWS, 4))
    assert loader.state_dict()["position"] == 0
    assert type(DataLoaderShard(ROWS, use_stateful_dataloader=True)) is DataLoaderShard


@pytest.mark.parametrize("read_for_all", [False, True])
def test_on_several_processes_its_state_is_our_own(theirs, read_for_all):
    """torchdata's would go on in another order."""

    class More(theirs):
        def state_dict(self):
            return {**super().state_dict(), "more": 1}

    for kind, more in ((theirs, {}), (More, {"more": 1})):
        loader = object.__new__(kind)
        loader.__dict__.update(vars(DataLoader(ROWS, batch_size=2)))
        share = prepare_data_loader(loader, num_processes=2, process_index=0, dispatch_batches=read_for_all)
        assert isinstance(share, kind)
        assert share.state_dict() == {"epoch": 0, "position": 0, "processes": 2, **more}
        assert read_for_all or rows(share) == [[0, 1], [4, 5], [8, 9]]


@pytest.mark.parametrize("kind", [DataLoaderShard, DataLoaderDispatcher, SkipDataLoader])
def test_a_loader_made_by_hand_exchanges_states_with_torchdata(kind):
    theirs = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def made(of, **more):
        return of(ROWS, 3, shuffle=True, generator=torch.Generator().manual_seed(3), **more)

    mine, other = made(lambda *a, **k: kind(a[0], batch_size=a[1], **k), use_stateful_dataloader=True), made(theirs)
    assert isinstance(mine, theirs) and isinstance(mine, kind) and isinstance(mine.base_dataloader, theirs)
    for loader in (mine, other):
        next(iter(loader))
    states = [mine.state_dict(), other.state_dict()]
    assert states[0].keys() == states[1].keys() and states[0]["_num_yielded"] == states[1]["_num_yielded"] == 1
    went_on = made(theirs)
    went_on.load_state_dict(states[0])
    mine.load_state_dict(states[1])
    assert rows(mine) == rows(went_on) != rows(made(theirs))


def test_a_loader_made_by_hand_with_a_state_is_shared():
    loader = DataLoaderShard(ROWS, batch_size=2, use_stateful_dataloader=True)
    shares = [prepare_data_loader(loader, num_processes=2, process_index=rank) for rank in (0, 1)]
    assert [rows(share) for share in shares] == [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [0, 1]]]
    skipping = SkipDataLoader(ROWS, batch_size=2, skip_batches=1, use_stateful_dataloader=True)
    assert rows(prepare_data_loader(skipping, num_processes=2, process_index=0)) == [[2, 3], [6, 7]]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(ROWS)


class Places:
    """An iterator that knows its place, as torchdata's do."""

    def __init__(self, batches):
        self.batches, self.place = batches, 0

    def __next__(self):
        batch = next(self.batches)
        self.place += 1
        return batch

    def state_dict(self):
        return {"place": self.place}


class OwnState(DataLoader):
    def _get_iterator(self):
        return Places(super()._get_iterator())

    def __iter__(self):
        self.read = super().__iter__()
        return self.read

    def state_dict(self):
        return self.read.state_dict()

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize("data", [ROWS, Stream()], ids=["data set", "stream"])
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("skipped", [0, 1])
def test_a_loader_of_torchdata_goes_on(data, workers, skipped):
    theirs = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    accelerator = Accelerator(gradient_accumulation_steps=2)

    def made():
        return skip_first_batches(accelerator.prepare(theirs(data, batch_size=2, num_workers=workers)), skipped)

    first, second, batches = made(), made(), []
    for batch in first:
        batches.append(batch.tolist())
        if len(batches) == 2:
            second.load_state_dict(first.state_dict())
    assert batches == rows(made()) and len(batches) == 5 - skipped
    assert rows(second) == batches[2:] and rows(second) == batches, "the next pass is whole"


@pytest.mark.parametrize("steps", [1, 2])
def test_a_state_of_its_own_is_that_of_the_batch_in_hand(steps):
    """With accumulation a stream is read one batch ahead, which was lost on going on."""
    loader = Accelerator(gradient_accumulation_steps=steps).prepare(OwnState(Stream(), batch_size=4))
    places = [loader.state_dict()["place"] for _ in loader]
    assert places == [1, 2, 3] and loader.state_dict() == {"place": 3}
    assert next(iter(loader)) is not None and loader.state_dict() == {"place": 1}


@pytest.mark.parametrize("position", [0, 2])
def test_a_state_of_several_processes_on_one(tmp_path, position):
    """Ours, then; the class of the script keeps its own."""

    class Refuses(OwnState):
        def load_state_dict(self, state):
            raise AssertionError("this is not its own state")

    torch.save({"ranks": [{"epoch": 1, "position": position, "processes": 2}] * 2}, tmp_path / "dl_state_dict.bin")
    loader = Accelerator().prepare(Refuses(ROWS))
    if not position:
        load_loader_state(loader, tmp_path, 0, 0)
        return
    with pytest.raises(CheckpointError, match=r"in the middle of an epoch on 2 processes. Load it on the same number"):
        load_loader_state(loader, tmp_path, 0, 0)
