"""
What a monitor should notice, and what it should leave alone. Prints, for every case, what each process saw: [kind of
error, message].

One process imports torch, and forks two for every case; all cases run at the same time.
"""

import json
import os
import random
import sys
import sysconfig
import time
import traceback
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

from torchlift.runtime import Accelerator
from torchlift.runtime.local_sgd import LocalSGD
from torchlift.runtime.process.system import get_free_port
from torchlift.runtime.strategies import strategy

STEPS = 4


def net(width=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1))


def rows(count=16):
    drawn = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(count, 4, generator=drawn), torch.randn(count, 1, generator=drawn))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def fit(accelerator, model, optimizer, loader, passes=2):
    """Train, at the pace of a real model."""
    for _ in range(passes):
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(model(x), y))
            optimizer.step()
            time.sleep(0.1)


# ---------------------------------------------------------------- weights that no prepared model holds


def a_model_that_is_never_prepared(accelerator):
    head = net()
    optimizer, loader = accelerator.prepare(sgd(head), DataLoader(rows(), batch_size=2))
    fit(accelerator, head, optimizer, loader)


def weights_beside_the_model(accelerator):
    model, margins = net(), nn.Linear(1, 1)
    optimizer = torch.optim.Adam([*model.parameters(), *margins.parameters()], lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(rows(), batch_size=2))
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.mse_loss(margins(model(x)), y))
        optimizer.step()
        time.sleep(0.1)


def plain_tensors_of_a_prepared_optimizer(accelerator):
    weight = torch.zeros(4, 1, requires_grad=True)
    optimizer, loader = accelerator.prepare(torch.optim.SGD([weight], lr=0.1), DataLoader(rows(), batch_size=2))
    fit(accelerator, lambda x: x @ weight, optimizer, loader)


def a_script_that_ends_at_once(accelerator):
    head = net()
    head(torch.ones(1, 4) + accelerator.process_index).sum().backward()
    sgd(head).step()


def quiet_a_probe_of_one_rank(accelerator):
    accelerator.prepare(nn.Linear(2, 2))
    if accelerator.is_main_process:
        probe = net()
        fit(accelerator, probe, sgd(probe), DataLoader(rows(), batch_size=4, shuffle=True))
    accelerator.wait_for_everyone()


def quiet_a_probe_on_purpose(accelerator):
    probe = net()
    accelerator.prepare(nn.Linear(2, 2))
    with accelerator.unsynchronized(probe):
        fit(accelerator, probe, sgd(probe), DataLoader(rows(), batch_size=4, shuffle=True, generator=own(accelerator)))


def own(accelerator):
    return torch.Generator().manual_seed(accelerator.process_index)


def quiet_the_same_steps_on_all_ranks(accelerator):
    accelerator.prepare(nn.Linear(2, 2))
    temperature = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.LBFGS([temperature], max_iter=3)
    logits, labels = rows().tensors

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(logits.mean(1, keepdim=True) / temperature, labels)
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)
        time.sleep(0.2)


def quiet_a_probe_of_one_rank_and_then_one_of_all(accelerator):
    """They have the same shapes, and nothing to do with one another."""
    accelerator.prepare(nn.Linear(2, 2))
    if accelerator.is_main_process:
        probe = net()
        fit(accelerator, probe, sgd(probe), DataLoader(rows(), batch_size=4, shuffle=True))
    accelerator.wait_for_everyone()
    probe = net()
    fit(accelerator, probe, sgd(probe), DataLoader(rows(), batch_size=4))


def quiet_a_model_that_the_script_keeps_equal(accelerator):
    for wraps in (True, False):
        model = net()
        own = nn.parallel.DistributedDataParallel(model) if wraps else model
        optimizer = sgd(model)
        drawn = torch.Generator().manual_seed(accelerator.process_index)
        for _ in range(STEPS):
            optimizer.zero_grad()
            own(torch.randn(3, 4, generator=drawn)).square().mean().backward()
            if not wraps:
                for parameter in model.parameters():
                    parameter.grad = accelerator.reduce(parameter.grad, "mean")
            optimizer.step()
            time.sleep(0.1)
        accelerator.prepare(DataLoader(rows()))  # of the second one nothing else tells that its rows are shared


# ---------------------------------------------------------------- weights that differ


def trained(accelerator, model=None, **options):
    model = net() if model is None else model
    return accelerator.prepare(model, sgd(model), DataLoader(rows(), batch_size=2, **options))


def weights_of_one_rank(accelerator):
    model, optimizer, loader = trained(accelerator)
    if accelerator.process_index == 1:
        with torch.no_grad():
            model[2].weight.mul_(1.001)
    fit(accelerator, model, optimizer, loader)


def gradients_of_one_rank(accelerator):
    model, optimizer, loader = trained(accelerator)
    for number, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        accelerator.backward(nn.functional.mse_loss(model(x), y))
        if accelerator.is_main_process and number == 1:
            model[0].bias.grad.clamp_(-1e-6, 1e-6)
        optimizer.step()
        time.sleep(0.2)


def weights_that_differ_when_they_are_saved(accelerator):
    model, optimizer, loader = trained(accelerator)
    fit(accelerator, model, optimizer, loader, 1)
    if accelerator.is_main_process:
        nn.init.zeros_(model[0].weight)
    accelerator.save_state(f"{sys.argv[1]}/{os.environ['MASTER_PORT']}")
    accelerator.wait_for_everyone()
    time.sleep(1.5)
    accelerator.wait_for_everyone()


def weights_that_differ_when_a_file_is_written(accelerator):
    model, optimizer, loader = trained(accelerator)
    fit(accelerator, model, optimizer, loader, 1)
    if accelerator.is_main_process:
        nn.init.zeros_(model[0].weight)
    accelerator.save(accelerator.get_state_dict(model), f"{sys.argv[1]}/{os.environ['MASTER_PORT']}.pt")
    time.sleep(1.5)
    accelerator.wait_for_everyone()


def weights_that_are_reset_by_random_numbers(accelerator):
    model, optimizer, loader = trained(accelerator)
    for number, (x, y) in enumerate(loader):
        if number == 2:
            model[2].reset_parameters()
        optimizer.zero_grad()
        accelerator.backward(nn.functional.mse_loss(model(x), y))
        optimizer.step()
        time.sleep(0.3)


def buffers_that_do_not_become_equal(accelerator):
    model = net()
    model[1].register_buffer("statistics", torch.full((2,), float(accelerator.process_index)))
    model, optimizer, loader = trained(accelerator, model)
    model[1].statistics.fill_(accelerator.process_index)
    strategy.equalise = lambda world, tensors, together=False: None  # as though they could not be written to
    fit(accelerator, model, optimizer, loader)


def quiet_statistics_of_a_norm(accelerator):
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    model, optimizer, loader = trained(accelerator, model)
    fit(accelerator, model, optimizer, loader)


def quiet_not_a_number(accelerator):
    model = net()
    model[0].unused = nn.Parameter(torch.full((2,), float("nan")), requires_grad=False)
    model, optimizer, loader = trained(accelerator, model)
    with torch.no_grad():
        model[0].unused.view(torch.int32)[0] = 0x7FC00000 + accelerator.process_index
        model[2].weight[0, 0] = float("inf")
    fit(accelerator, model, optimizer, loader)


def quiet_local_sgd(accelerator):
    model, optimizer, loader = trained(accelerator)
    with LocalSGD(accelerator=accelerator, model=model, local_sgd_steps=3) as local:
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(model(x), y))
            optimizer.step()
            local.step()
            time.sleep(0.1)
    fit(accelerator, model, optimizer, loader)


def quiet_uneven_inputs(accelerator):
    model, optimizer, _ = trained(accelerator)
    mine = DataLoader(rows(2 + 4 * accelerator.process_index), batch_size=2)
    with accelerator.join_uneven_inputs([model]):
        fit(accelerator, model, optimizer, mine, 1)
    fit(accelerator, model, optimizer, DataLoader(rows(8), batch_size=2, generator=own(accelerator), shuffle=True))


def quiet_windows_and_weights_without_gradient(accelerator):
    more = Accelerator(gradient_accumulation_steps=2)
    model = net()
    model[0].unused = nn.ParameterList(nn.Parameter(torch.ones(2)) for _ in range(200))
    model, optimizer, loader = trained(more, model)
    for _ in range(2):
        for x, y in loader:
            with more.accumulate(model):
                more.backward(nn.functional.mse_loss(model(x), y))
                optimizer.step()
                optimizer.zero_grad()
            time.sleep(0.1)


def quiet_a_model_without_weights_and_a_rank_that_sleeps(accelerator):
    accelerator.prepare(nn.Identity())
    model, optimizer, loader = trained(accelerator)
    fit(accelerator, model, optimizer, loader, 1)
    if accelerator.is_main_process:
        time.sleep(4)
    fit(accelerator, model, optimizer, loader, 1)


# ---------------------------------------------------------------- rows


def a_loader_that_was_not_prepared(accelerator):
    model = net()
    model, optimizer = accelerator.prepare(model, sgd(model))
    training_rows = DataLoader(rows(), batch_size=2)
    fit(accelerator, model, optimizer, training_rows)


def a_loader_that_every_rank_shuffles(accelerator):
    model = net()
    model, optimizer = accelerator.prepare(model, sgd(model))
    training_rows = DataLoader(rows(), batch_size=2, shuffle=True)
    fit(accelerator, model, optimizer, training_rows)


class Drawn(TensorDataset):
    """Draws its rows by Python's generator, whatever index is asked for."""

    def __getitem__(self, index):
        return super().__getitem__(random.randrange(len(self)))


def a_prepared_loader_whose_data_ignore_the_rank(accelerator):
    random.seed(0)
    model = net()
    model, optimizer, loader = accelerator.prepare(model, sgd(model), DataLoader(Drawn(*rows().tensors), batch_size=2))
    fit(accelerator, model, optimizer, loader)


BAR = """
def bar(rows, disable):
    if disable:
        for row in rows:
            yield row
        return
    for number, row in enumerate(rows):
        yield row
"""


def a_loader_in_a_progress_bar(accelerator):
    """The bar is one of another package, and disabled on one rank."""
    package = {}
    exec(compile(BAR, os.path.join(sysconfig.get_path("purelib"), "bars.py"), "exec"), package)
    model = net()
    model, optimizer = accelerator.prepare(model, sgd(model))
    training_rows = DataLoader(rows(), batch_size=2)
    fit(accelerator, model, optimizer, package["bar"](training_rows, disable=not accelerator.is_main_process), 1)


def a_warning_of_the_last_step(accelerator):
    model = net()
    model, optimizer = accelerator.prepare(model, sgd(model))
    training_rows = DataLoader(rows(4), batch_size=2)
    for x, y in training_rows:
        accelerator.backward(nn.functional.mse_loss(model(x), y))
        optimizer.step()
    accelerator.end_training()


def quiet_shards_that_the_script_shuffles(accelerator):
    model = net()
    model, optimizer = accelerator.prepare(model, sgd(model))
    mine = Subset(rows(), range(accelerator.process_index, 16, 2))
    fit(accelerator, model, optimizer, DataLoader(mine, batch_size=2, shuffle=True))


def quiet_anchors_beside_a_prepared_loader(accelerator):
    model, optimizer, loader = trained(accelerator)
    anchors = iter(DataLoader(rows(), batch_size=2, shuffle=True))
    for x, y in loader:
        optimizer.zero_grad()
        seen, _ = next(anchors)
        accelerator.backward(nn.functional.mse_loss(model(x), y) + model(seen).square().mean())
        optimizer.step()
        time.sleep(0.1)


def quiet_a_loader_with_a_sampler_of_its_own(accelerator):
    model = net()
    model, optimizer = accelerator.prepare(model, sgd(model))
    data = rows()
    sampler = DistributedSampler(data, num_replicas=2, rank=accelerator.process_index)
    fit(accelerator, model, optimizer, DataLoader(data, batch_size=2, sampler=sampler))


def quiet_data_of_one_value(accelerator):
    model = net()
    model, optimizer = accelerator.prepare(model, sgd(model))
    data = TensorDataset(torch.ones(16, 4), torch.ones(16, 1))
    fit(accelerator, model, optimizer, DataLoader(data, batch_size=2))


def quiet_batches_shared_by_hand(accelerator):
    model = net()
    model, optimizer = accelerator.prepare(model, sgd(model))
    for x, y in DataLoader(rows(), batch_size=4):
        with accelerator.split_between_processes({"x": x, "y": y}) as mine:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(model(mine["x"]), mine["y"]))
            optimizer.step()
        time.sleep(0.1)


def quiet_rows_that_are_only_read(accelerator):
    model, optimizer, loader = trained(accelerator)
    validation = DataLoader(rows(), batch_size=2)
    for _ in range(3):
        with torch.no_grad():
            for x, _ in validation:
                model(x)
        fit(accelerator, model, optimizer, loader, 1)


# ---------------------------------------------------------------- ranks that are gone


def one_rank_raises_while_the_other_waits(accelerator):
    if accelerator.process_index == 1:
        raise ValueError("no such file: labels.csv")
    accelerator.gather(torch.ones(2))


def rank_0_raises_while_the_other_trains(accelerator):
    model, optimizer, loader = trained(accelerator)
    for number, (x, y) in enumerate(loader):
        if accelerator.is_main_process and number == 2:
            raise KeyError("accuracy")
        optimizer.zero_grad()
        accelerator.backward(nn.functional.mse_loss(model(x), y))
        optimizer.step()


HELPERS = {"Drawn", "net", "rows", "sgd", "fit", "own", "trained", "child", "main", "get_free_port"}
CASES = [
    one
    for name, one in list(globals().items())
    if getattr(one, "__module__", "") == "__main__" and callable(one) and name not in HELPERS
]


def child(case, rank, port, out):
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.dup2(out, 2)
    accelerator = Accelerator()
    accelerator.wait_for_everyone()
    failed = False
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            case(accelerator)
            accelerator.end_training()
            text = ""
        except (RuntimeError, ValueError, KeyError) as error:
            failed = not isinstance(error, RuntimeError)
            text = "".join(traceback.format_exception_only(error))
            if failed:
                sys.excepthook(type(error), error, error.__traceback__)
    sys.stderr.write("\n===" + json.dumps([text, [str(one.message) for one in told if one.category is UserWarning]]))
    sys.stderr.flush()
    os._exit(1)


def main():
    running = []
    for case in CASES:
        port = get_free_port()
        for rank in range(2):
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                child(case, rank, port, write)
            os.close(write)
            running.append((case.__name__, pid, read))
    seen = {}
    for name, pid, read in running:
        with os.fdopen(read) as pipe:
            text = pipe.read()
        os.waitpid(pid, 0)
        _, mark, told = text.rpartition("\n===")
        seen.setdefault(name, []).append(json.loads(told) if mark else [f"no end: {text}", []])
    print("RESULT " + json.dumps(seen), flush=True)


main()
