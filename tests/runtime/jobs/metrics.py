"""gather_for_metrics: trees of anything, several values for each row, loaders that were never prepared."""

import collections
import inspect
import warnings

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from torchlift.runtime import Accelerator, RemainderError
from torchlift.runtime.errors import WrongKindError

split, each = Accelerator(split_batches=True), Accelerator(split_batches=False)
rank, size = split.process_index, split.num_processes


def loader(accelerator, rows, batch):
    return accelerator.prepare(DataLoader(TensorDataset(torch.arange(rows)), batch_size=batch))


def both():
    return [(accelerator, loader(accelerator, rows, 3)) for accelerator in (split, each) for rows in (7, 8, 1, 12)]


def rows_of(batches):
    return list(range(len(batches.dataset)))


Output = collections.namedtuple("Output", "scores names")


def mixed_trees_are_gathered_leaf_by_leaf():
    for accelerator, batches in both():
        scores, names, ids, arrays, losses, kinds = [], [], [], [], [], []
        for (x,) in batches:
            tree = {
                "out": Output(x * 2, [f"row {int(one)}" for one in x]),
                "ids": tuple(int(one) for one in x),
                "more": [x.float().mean(), None, x.numpy()[:, None]],
                "tokens": [["a"] * int(one) for one in x],
                "kind": "test",
            }
            got = accelerator.gather_for_metrics(tree)
            assert isinstance(got["out"], Output) and isinstance(got["ids"], tuple) and got["more"][1] is None
            scores += got["out"].scores.tolist()
            names += got["out"].names
            ids += got["ids"]
            losses.append(got["more"][0].shape)
            arrays += got["more"][2].ravel().tolist()
            kinds.append(got["kind"])
            assert [len(one) for one in got["tokens"]] == list(got["ids"])
        rows = rows_of(batches)
        assert scores == [2 * one for one in rows] and names == [f"row {one}" for one in rows], (scores, names)
        assert ids == arrays == rows and set(losses) == {(size,)} and kinds == [["test"] * size] * len(kinds)


def a_dict_for_each_row_is_an_object():
    for accelerator, batches in both():
        found = []
        for (x,) in batches:
            boxes = [{"boxes": torch.full((int(one) % 3, 4), int(one)), "id": one} for one in x]
            found += accelerator.gather_for_metrics((boxes, x))[0]
        assert [int(one["id"]) for one in found] == rows_of(batches)
        assert [len(one["boxes"]) for one in found] == [one % 3 for one in rows_of(batches)]
    for (x,) in loader(split, 2 * size, 2 * size):
        layers = [{"logits": x.float()}, {"logits": x * 2}, {"logits": x}]
        assert [len(one["logits"]) for one in split.gather_for_metrics(layers)] == [2 * size] * 3, "a part of the tree"
        pairs = [(x, x * 2), (x, x)]
        assert [len(one[1]) for one in split.gather_for_metrics(pairs)] == [2 * size] * 2, "keys and values of layers"


class Graphs:
    """As PyG's Batch."""

    def __init__(self, y):
        self.y, self.edges = y, torch.zeros(2, 3 * len(y))

    def to_data_list(self):
        return [int(one) for one in self.y]

    @classmethod
    def from_data_list(cls, rows):
        return cls(torch.tensor(rows, dtype=torch.long))


class Opaque:
    def __init__(self, y):
        self.y, self.label = y, "mine"


def batches_of_graphs_are_taken_apart_or_refused():
    for accelerator, batches in both():
        found = []
        for (x,) in batches:
            got = accelerator.gather_for_metrics({"graphs": Graphs(x)})["graphs"]
            assert isinstance(got, Graphs)
            found += got.y.tolist()
            with pytest.raises(WrongKindError, match=r"a Opaque, .*gather_for_metrics\(batch.y\)"):
                accelerator.gather_for_metrics(Opaque(x))
        assert found == rows_of(batches)


def several_values_for_each_row():
    for k in (1, 2, 3, 4):
        for accelerator, batches in both():
            alone, beside = [], []
            for (x,) in batches:
                views = x.repeat_interleave(k)
                alone += accelerator.gather_for_metrics(views).tolist()
                beside += accelerator.gather_for_metrics((views[:, None], x))[0].ravel().tolist()
            wanted = [row for row in rows_of(batches) for _ in range(k)]
            assert alone == beside == wanted, (k, accelerator is split, alone)


def several_values_of_collected_rows():
    for k in (1, 2):
        for accelerator, batches in both():
            held = torch.cat([x.repeat_interleave(k) for (x,) in batches])
            wanted = [row for row in rows_of(batches) for _ in range(k)]
            assert accelerator.gather_for_metrics(held).tolist() == wanted
    for accelerator, batches in both():
        held = []
        for (x,) in batches:
            held.append(x)
            accelerator.gather_for_metrics(x.float())
            if accelerator.gradient_state.end_of_dataloader:
                got = accelerator.gather_for_metrics(torch.cat(held))
        assert got.tolist() == rows_of(batches), "in the last step of the loop"


def a_loader_that_was_never_prepared_is_named():
    for (x,) in loader(each, 4 * size - 1, 4):
        each.gather_for_metrics(x)
    never = DataLoader(TensorDataset(torch.arange(3)), batch_size=3)
    for (x,) in never:
        with pytest.raises(RemainderError, match=r"`never` was never prepared"):
            each.gather_for_metrics(x)
    fresh = Accelerator(split_batches=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for (x,) in never:
            assert len(fresh.gather_for_metrics(x)) == 3 * size
    assert any("`never` was never prepared" in str(one.message) for one in said)


def rows_of_a_batch_after_a_loop_in_its_step():
    """The other loop has ended, and its last batch looks like the one in hand: the rows alone do not tell."""
    for accelerator in (split, each):
        batch, others = (2 * size, 2 * size + 1) if accelerator is split else (2, 4 * size - 1)
        training, validation = loader(accelerator, 4 * size, batch), loader(accelerator, others, batch)
        for (x,) in training:
            for _ in validation:
                pass
            with pytest.raises(RemainderError, match="match the batches of two loaders"):
                accelerator.gather_for_metrics(x.clone())
            assert len(accelerator.gather_for_metrics((x.clone(), x))[0]) == 2 * size


CHECKS = [one for one in list(globals().values()) if inspect.isfunction(one) and not inspect.signature(one).parameters]
for check in CHECKS:
    print(check.__name__, flush=True)
    check()
assert len(CHECKS) == 8, len(CHECKS)
print("RESULT true", flush=True)
