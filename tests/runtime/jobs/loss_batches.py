"""Which batch a loss is of, where the global batch is kept: gradients as on one process, or an error at once."""

import gc
import inspect
import weakref

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, TensorDataset
from torch.utils.data import Sampler as TorchSampler

from torchlift.runtime import Accelerator
from torchlift.runtime.errors import UnclearBatchError, WrongKindError

accelerator = Accelerator(split_batches=True)
rank, size = accelerator.process_index, accelerator.num_processes
net = accelerator.prepare(torch.nn.Linear(1, 1, bias=False).double())


def data(rows, start=1.0):
    return TensorDataset(torch.arange(start, start + rows).double()[:, None])


def loader(rows, batch, start=1.0, to=accelerator, **options):
    return to.prepare(DataLoader(data(rows, start), batch_size=batch, **options))


def gradient():
    found, net.weight.grad = net.weight.grad.item(), None
    return found


def trains(loss, wanted, **options):
    accelerator.backward(loss, **options)
    found = gradient()
    assert abs(found - wanted) < 1e-12, (found, wanted)


def refuses(loss, **options):
    before = loss.item()
    with pytest.raises(UnclearBatchError) as said:
        accelerator.backward(loss, **options)
    assert all(way in str(said.value) for way in ("batch=inputs", "drop_last=True", "split_batches=False")), said
    assert net.weight.grad is None and loss.item() == before
    accelerator._progress.clear()


def loss_of(x):
    return net(x).mean()


def peeked(batches):
    for batch in batches:
        return batch
    raise AssertionError("no batch")


def the_batch_of_a_loop():
    for start, (x,) in zip((1, 5), loader(7, 4), strict=True):
        trains(loss_of(x * 1), 2.5 if start == 1 else 6)


def two_loaders_in_one_loss():
    for first, second in ((7, 8), (8, 7), (8, 9)):
        for (x,), (y,) in zip(loader(first, 4), loader(second, 4), strict=False):
            refuses(loss_of(x) + loss_of(y))
            break
    one = loader(7, 4)
    for (x,) in one:
        (y,) = next(iter(loader(9, 5)))
        refuses(loss_of(x) + loss_of(y))
        break


def two_loaders_whose_shards_are_alike_or_even():
    for (x,), (y,) in zip(loader(7, 4), loader(7, 4, 11.0), strict=True):
        wanted = torch.cat([accelerator.gather_for_metrics(one) for one in (x, y)])
        trains(loss_of(x) + loss_of(y), 2 * wanted.mean().item())
    whole = {"drop_last": True}
    for (x,), (y,) in zip(loader(50, 2 * size, **whole), loader(30, size, **whole), strict=False):
        trains(loss_of(x) + loss_of(y), (accelerator.gather(x).mean() + accelerator.gather(y).mean()).item())


def a_batch_that_is_named():
    for (x,), (y,) in zip(loader(7, 4), loader(5, 5), strict=False):
        accelerator.backward(loss_of(x), batch=x)
        trains(loss_of(y), 2.5 + 3.0, batch=[y])
        trains(loss_of(torch.ones(2, 1).double() * (rank + 1)), (size + 1) / 2, batch=None)
        break
    for wrong in (torch.ones(3, 1), "last"):
        with pytest.raises(WrongKindError, match="as the loader yielded it"):
            accelerator.backward(loss_of(x), batch=wrong)
    refuses(loss_of(x) + loss_of(y), batch=(x, y))


def a_pass_that_was_left():
    (x,) = peeked(loader(7, 7))
    trains(loss_of(x), 4)  # its graph holds the batch
    trains(loss_of(x), 4)
    trains(loss_of(torch.ones(3, 1).double() * (rank + 1)), (size + 1) / 2)  # other data: the batch has served
    (x,) = peeked(loader(7, 7))
    refuses(loss_of(x * 1))
    (x,) = next(iter(loader(7, 7)))
    refuses(loss_of(torch.ones(3, 1).double()))


def batches_that_were_kept():
    kept = list(loader(7, 4))
    for wanted, (x,) in zip((2.5, 6.0), kept, strict=True):
        trains(loss_of(x), wanted)
    refuses(loss_of(torch.cat([x for (x,) in loader(7, 4)])))
    refuses(sum(loss_of(x) for (x,) in loader(7, 4)))


def no_pass_and_none_before():
    trains(loss_of(torch.ones(3, 1).double() * (rank + 1)), (size + 1) / 2)
    with torch.no_grad():
        for (x,) in loader(7, 4):
            net(x)
    trains(loss_of(torch.ones(3, 1).double() * (rank + 1)), (size + 1) / 2)


def several_batches_in_one_loss():
    batches = iter(loader(9, 4))
    (x,), (y,) = next(batches), next(batches)
    refuses(loss_of(x) + loss_of(y))
    total = 0.0
    for number, (x,) in enumerate(loader(9, 4)):
        total = total + loss_of(x)
        if number:
            refuses(total)
            break


def a_batch_that_was_fetched_ahead():
    batches = iter(loader(7, 4))
    (x,) = next(batches)
    for wanted in (2.5, 6.0):
        loss = loss_of(x)
        x = next(batches, (None,))[0]
        trains(loss, wanted)


def a_batch_that_was_passed_over():
    for number, (x,) in enumerate(loader(11, 4)):
        if number != 1:
            trains(loss_of(x), (2.5, 0, 10.0)[number])


def evaluation_inside_of_training():
    test, side = loader(5, 3, 20.0), iter(loader(90, 1, 30.0))
    for wanted, (x,) in zip((2.5, 6.0), loader(7, 4), strict=True):
        for (y,) in test:  # whoever forgets no_grad
            losses = loss_of(y)
        trains(loss_of(x), wanted)
        with torch.no_grad():
            (y,) = next(side)
            (z,) = next(iter(test))
        trains(loss_of(x), wanted)
        net.eval()
        (y,), (z,) = next(side), next(iter(test))
        net.train()
        trains(loss_of(x * 1), wanted)
        del losses, z
    for (x,) in loader(7, 7):
        (y,) = peeked(test)
        refuses(loss_of(x))
        break
    accelerator._progress.clear()
    for (x,) in loader(7, 7):
        loss = loss_of(x)
        for (y,) in test:
            loss = loss + loss_of(y)
        refuses(loss)


def a_look_at_a_batch_before_training():
    train, test = loader(7, 4), loader(5, 3, 20.0)
    looked = iter(test)
    (y,), (z,) = next(looked), peeked(test)
    for wanted, (x,) in zip((2.5, 6.0), train, strict=True):
        trains(loss_of(x * 1), wanted)
    accelerator._progress.clear()
    for keep in (looked, None):
        (y,) = peeked(test) if keep is None else next(looked)
        for (x,) in train:
            refuses(loss_of(x * 1) + loss_of(y))
            break
    del z


def a_model_that_is_trained_in_evaluation_mode():
    net.eval()
    for wanted, (x,) in zip((2.5, 6.0), loader(7, 4), strict=True):
        trains(loss_of(x * 1), wanted)
    net.train()


def loops_in_loops():
    inner = loader(5, 5, 20.0)
    for wanted, (x,) in zip((2.5, 6.0), loader(7, 4), strict=True):
        for (y,) in inner:
            trains(loss_of(y * 1), 22)
        trains(loss_of(x * 1), wanted)
    for (x,) in loader(7, 4):
        for (y,) in inner:
            refuses(loss_of(y * 1) + loss_of(x))
            break
        break


def several_losses_of_one_batch():
    for wanted, (x,) in zip((2.5, 6.0), loader(7, 4), strict=True):
        made = net(torch.ones(len(x), 1).double())
        loss = loss_of(x)
        accelerator.backward(loss, retain_graph=True)
        accelerator.backward(made.mean())
        trains(loss, 2 * wanted + 1)


class Stream(IterableDataset):
    def __iter__(self):
        yield from data(9)


class Mine(TorchSampler):
    def __iter__(self):
        yield from range(8)

    def __len__(self):
        return 8


def what_is_not_known_beforehand():
    """That shards are even is certain of torch's own samplers alone, and where short batches are dropped."""
    rows = data(8)
    unknown = [
        DataLoader(Stream(), batch_size=2 * size),
        DataLoader(rows, batch_sampler=BatchSampler(range(8), 4, False)),
        DataLoader(rows, batch_size=2 * size, sampler=Mine()),
    ]
    for one in unknown:
        for (x,), (y,) in zip(accelerator.prepare(one), loader(30, size, drop_last=True), strict=False):
            refuses(loss_of(x) + loss_of(y))
            break
    for one in (DataLoader(Stream(), 2 * size, drop_last=True), DataLoader(rows, size, sampler=Mine(), drop_last=True)):
        for (x,), (y,) in zip(accelerator.prepare(one), loader(30, size, drop_last=True), strict=False):
            accelerator.backward(loss_of(x) + loss_of(y))
            gradient()
            break
    accelerator._progress.clear()


def sums_need_rows_alone():
    for (x,), (y,) in zip(loader(7, 4), loader(7 + size, 5), strict=False):
        total = 15.0 + 10.0
        trains(net(x).sum() + net(y).sum(), total, reduction="sum")
        break
    for (x,), (y,) in zip(loader(5, 4), loader(7, 6), strict=False):
        refuses(net(x).sum() + net(y).sum(), reduction="sum")
        break
    for (x,), (y,) in zip(loader(5, 4), loader(7, 6), strict=False):
        refuses(net(x).sum() + net(y).sum(), num_items=3)
        break


def with_a_batch_a_process_nothing_is_asked():
    each = Accelerator(split_batches=False)
    for (x,), (y,) in zip(loader(7, 4, to=each), loader(5, 4, to=each), strict=False):
        each.backward(loss_of(x) + loss_of(y))
        gradient()
    each.backward(loss_of(torch.ones(1, 1).double() * (rank + 1)))
    assert gradient() == (size + 1) / 2


def batches_of_other_sizes_count_alike_where_each_is_a_step():
    """As in DDP: the mean over the processes of each one's own mean; and one loader's rows say nothing of another's."""
    each = Accelerator(split_batches=False)
    rows = data(3 * size + 2)
    uneven = [[0], [1, 2, 3], [4, 5], *([row] for row in range(6, 2 * size))][:size]
    wanted = sum(sum(row + 1.0 for row in batch) / len(batch) for batch in uneven) / size
    for (x,), _ in zip(
        each.prepare(DataLoader(rows, batch_sampler=uneven)), loader(8 * size, 2, to=each), strict=False
    ):
        each.backward(loss_of(x))
        assert abs(gradient() - wanted) < 1e-12
        each.backward(loss_of(x), batch=x)
        assert abs(gradient() - wanted) < 1e-12


def copies_of_batches_that_were_fetched_ahead():
    """A prefetcher hands out what it has made of a batch, and has made the next one already: the batches are gone."""
    batches = iter(loader(7, 4))

    def fetch():
        return [x * 1.0 for x in next(batches)]

    now, _following = fetch(), fetch()
    refuses(loss_of(now[0].clone()))
    for number, (x,) in enumerate(loader(11, 4)):  # one that was passed over: what the loop holds is what is trained
        if number != 1:
            trains(loss_of(x * 1.0), (2.5, 0, 10.0)[number])


def a_loss_of_other_data_in_a_closure():
    """What an optimizer is told is the mean over all rows, whatever loss the closure was differentiated for last."""
    optimizer = accelerator.prepare(torch.optim.LBFGS(net.parameters(), max_iter=1))
    for (x,) in loader(2 * size + 1, 2 * size + 1):
        before = net.weight.item()

        def closure(x=x):
            optimizer.zero_grad()
            loss = loss_of(x)
            accelerator.backward(loss)
            penalty = net.weight.square().sum()
            accelerator.backward(penalty, batch=None)
            return loss + penalty

        told = optimizer.step(closure).item()
        assert abs(told - ((size + 1) * before + before**2)) < 1e-9, told
    with torch.no_grad():
        net.weight.fill_(before)
    net.weight.grad = None


def a_sum_that_a_closure_has_joined_is_told_as_it_is():
    """It was multiplied by the number of processes once more."""
    optimizer = accelerator.prepare(torch.optim.LBFGS(net.parameters(), max_iter=1))
    for (x,) in loader(2 * size, 2 * size):
        before = net.weight.item()

        def closure(x=x):
            optimizer.zero_grad()
            loss = net(x).sum()
            accelerator.backward(loss, reduction="sum")
            return accelerator.reduce(loss.detach(), reduction="sum")

        told = optimizer.step(closure).item()
        assert abs(told - before * size * (2 * size + 1)) < 1e-9, told
    with torch.no_grad():
        net.weight.fill_(before)
    net.weight.grad = None


def a_backward_pass_of_the_script_has_no_weight():
    for (x,) in loader(7, 4):
        with pytest.raises(UnclearBatchError, match=r"only accelerator.backward\(loss\) does that"):
            loss_of(x).backward()
        net.weight.grad = None
        break
    accelerator._progress.clear()
    for (x,) in loader(4 * size, 2 * size):
        loss_of(x).backward()
        assert gradient() == (1 + 2 * size) / 2
        break


def a_batch_that_only_the_garbage_of_one_process_holds():
    gc.disable()
    try:
        batches = loader(11, 4)
        for start, (x,) in zip((1, 5, 9), batches, strict=True):
            if start == 1:
                cycle = [x] if rank else []
                cycle.append(cycle)
                del cycle
                continue
            trains(loss_of(x), 6.5 if start == 5 else 10)
    finally:
        gc.enable()


def nothing_here_keeps_a_batch_alive():
    batches = iter(loader(7, 4))
    (x,) = next(batches)
    kept = weakref.ref(x)
    trains(loss_of(x), 2.5)
    del x
    assert kept() is None


CHECKS = [one for one in list(globals().values()) if inspect.isfunction(one) and not inspect.signature(one).parameters]
for check in CHECKS:
    if check is not gradient:
        accelerator._progress.clear()
        print(check.__name__, flush=True)
        check()
assert len(CHECKS) == 26, len(CHECKS)
print("RESULT true", flush=True)
