"""Where data end: found out by looking one batch ahead, whatever lengths say."""

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset

from torchlift.runtime import Accelerator, DataLoaderConfiguration

ROWS, BATCH, WINDOW = 22, 4, 4


class Batches(Sampler):
    """Has no length at all."""

    def __iter__(self):
        for start in range(0, ROWS, BATCH):
            yield list(range(start, min(start + BATCH, ROWS)))


class Rows(Sampler):
    def __iter__(self):
        yield from range(ROWS)


class Stream(IterableDataset):
    def __iter__(self):
        yield from range(ROWS)


def saying(kind, said):
    """One that says how many it yields, and yields another number; it says nothing, or cannot say, for some."""

    def length(_self):
        if said is None:
            raise TypeError("no length")
        return said

    return kind() if said == "nothing" else type("Lies", (kind,), {"__len__": length})()


class LiesAboutItself(DataLoader):
    def __len__(self):
        return 3


def loaders(**options):
    data = TensorDataset(torch.arange(ROWS))
    for said in ("nothing", None, 1, 4, 6, 9):
        yield DataLoader(data, batch_sampler=saying(Batches, said), **options)
        yield DataLoader(data, batch_size=BATCH, sampler=saying(Rows, said), **options)
        yield DataLoader(saying(Stream, said), batch_size=BATCH, **options)
    yield LiesAboutItself(data, batch_size=BATCH, **options)
    yield DataLoader(data, batch_size=BATCH, shuffle=True, **options)


def accelerators(steps, **options):
    for split in (True, False):
        for dispatch in (False, True):
            config = DataLoaderConfiguration(split_batches=split, dispatch_batches=dispatch, **options)
            yield Accelerator(gradient_accumulation_steps=steps, dataloader_config=config)


def the_end_is_known_at_the_last_batch():
    for accelerator in accelerators(1):
        for raw in loaders():
            loader = accelerator.prepare(raw)
            for _ in range(2):
                ends = [(accelerator.gradient_state.end_of_dataloader, loader.end_of_dataloader) for _ in loader]
                assert ends and ends == [(False, False)] * (len(ends) - 1) + [(True, True)], (raw.dataset, ends)
            assert not accelerator.gradient_state.end_of_dataloader
            wanted = [one[0] if isinstance(one, list) else one for one in loader]
            asked = []
            for one in loader:
                asked.append(one[0] if isinstance(one, list) else one)
                assert accelerator.gradient_state.end_of_dataloader == (len(asked) == len(wanted))
            same = [sorted(torch.cat(all_of).tolist()) for all_of in (asked, wanted)]
            shuffled = type(raw.sampler).__name__ == "RandomSampler"
            assert shuffled or same[0] == same[1], "nothing is lost where somebody asks"


def the_tail_steps_once():
    for accelerator in accelerators(WINDOW):
        weight = torch.nn.Parameter(torch.zeros(()))
        optimizer = accelerator.prepare(torch.optim.SGD([weight], lr=1.0))
        for raw in loaders():
            loader = accelerator.prepare(raw)
            steps = []
            for _ in loader:
                with accelerator.accumulate():
                    weight.grad = torch.ones(())
                    accelerator._windows.noted_backward()
                    before = weight.item()
                    optimizer.step()
                    steps.append(weight.item() != before)
            wanted = [number % WINDOW == 0 or number == len(steps) for number in range(1, len(steps) + 1)]
            assert steps == wanted, (raw.dataset, getattr(raw, "batch_sampler", None), steps)


def workers_that_read_ahead_change_nothing():
    accelerator = Accelerator(split_batches=True)
    for raw in list(loaders(num_workers=1))[:3]:
        loader = accelerator.prepare(raw)
        ends = [accelerator.gradient_state.end_of_dataloader for _ in loader]
        assert ends == [False] * 5 + [True], ends


class Noisy(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.rand(())


def nothing_is_read_ahead_for_nobody():
    """Random numbers are drawn in the order in which plain torch draws them."""
    torch.manual_seed(5)
    plain = [(float(batch), torch.rand(()).item()) for batch in DataLoader(Noisy(), batch_size=1)]
    torch.manual_seed(5)
    accelerator = Accelerator()
    if accelerator.num_processes == 1:
        loader = accelerator.prepare(DataLoader(Noisy(), batch_size=1))
        assert [(float(batch), torch.rand(()).item()) for batch in loader] == plain
        torch.manual_seed(5)
        loader = accelerator.prepare(DataLoader(Noisy(), batch_size=1))
        found = []
        for batch in loader:
            with accelerator.accumulate():
                assert loader.end_of_dataloader == (len(found) == 5)
                found.append((float(batch), torch.rand(()).item()))
        assert found == plain


for check in (
    the_end_is_known_at_the_last_batch,
    the_tail_steps_once,
    workers_that_read_ahead_change_nothing,
    nothing_is_read_ahead_for_nobody,
):
    print(check.__name__, flush=True)
    check()
print("RESULT true", flush=True)
