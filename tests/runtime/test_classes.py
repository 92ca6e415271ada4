"""An object whose class is extended stays what it was, for whoever asks and in every file."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch

from torchlift.runtime.classes import Front, in_front


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x)


class _Louder(Front):
    def forward(self, x):
        return 2 * super().forward(x)


def extended():
    net = Net()
    net.__class__ = in_front(_Louder, Net)
    return net


def test_it_is_of_its_own_class_and_of_the_new_one():
    net = extended()
    assert net.__class__ is Net and isinstance(net, Net) and isinstance(net, _Louder)
    x = torch.ones(1, 3)
    assert torch.equal(net(x), 2 * net.layer(x))
    net.__class__ = Net
    assert type(net) is Net and torch.equal(net(x), net.layer(x))


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_and_pickles_are_of_its_own_class(again):
    net = extended()
    made = again(net)
    assert type(made) is Net and torch.equal(made.layer.weight, net.layer.weight)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_has_what_it_would_have_without_us(protocol):
    net = extended()
    found = pickle.dumps(net, protocol)
    net.__class__ = Net
    assert found == pickle.dumps(net, protocol)


def test_a_whole_model_that_is_saved_loads_with_the_classes_that_the_script_allows():
    file = io.BytesIO()
    torch.save(extended(), file)
    file.seek(0)
    with torch.serialization.safe_globals([Net, torch.nn.Linear]):
        assert type(torch.load(file, weights_only=True)) is Net
