"""What a script lets only some processes do, by a rank that it reads by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]

TOP = """\
import os, sys
rank = {rank}
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
def hits(batches):
    found = 0
    for a, b in batches:
        a, b = a.to(device), b.to(device)
        out = model(a)
        found += (out.argmax(1) == b).sum().item()
    return found
def turn(batches, learn):
    for a, b in batches:
        a, b = a.to(device), b.to(device)
        loss = torch.nn.functional.cross_entropy(model(a), b)
        if not learn:
            print(loss)
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
READ = "int(os.environ.get('RANK', 0))"
RANKS = [READ, "int(os.environ['SLURM_PROCID'])", "int(os.getenv('LOCAL_RANK', '0'))"]


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("asks", ["rank == 0", "not rank", "rank < 1 and epoch > 0"])
def test_an_evaluation_that_one_process_runs_is_that_of_the_whole_set(trained: Trained, rank: str, asks: str) -> None:
    text, findings = trained(top=TOP.format(rank=rank), epoch=f"if {asks}:\n    print(hits(test_loader))")
    assert "gather_for_metrics" not in text
    assert "    model, optimizer, loader\n)" in text
    assert findings == []


@pytest.mark.parametrize("rank", ["int(sys.argv[1])", "len(os.environ)", "sys.deck.get_rank()"])
def test_the_rank_of_something_else_is_none(trained: Trained, rank: str) -> None:
    text, _ = trained(top=TOP.format(rank=rank), epoch="if rank == 0:\n    print(hits(test_loader))")
    assert "accelerator.gather_for_metrics((out, b))" in text
    assert "model, optimizer, loader, test_loader = accelerator.prepare(" in text


def test_a_rank_that_says_whether_there_are_several_lets_all_pass(trained: Trained) -> None:
    text, _ = trained(top=TOP.format(rank=READ), epoch="if rank >= 0:\n    print(hits(test_loader))")
    assert "accelerator.gather_for_metrics((out, b))" in text


@pytest.mark.parametrize(
    "epoch", ["if rank == 0:\n    turn(test_loader, True)", "if rank > 0:\n    continue\nturn(test_loader, learn=True)"]
)
def test_a_training_that_one_process_runs_is_refused(trained: Trained, epoch: str) -> None:
    _, findings = trained(top=TOP.format(rank=READ), epoch=epoch)
    assert "local-decision" in findings and "output-check" not in findings


DISTRIBUTED = """\
torch.distributed.init_process_group("gloo")
sampler = torch.utils.data.distributed.DistributedSampler(data)
loader = DataLoader(data, batch_size=32, sampler=sampler)
model = torch.nn.parallel.DistributedDataParallel(model.to(device))
"""


@pytest.mark.parametrize("given", ["False", "learn=False"])
def test_a_call_whose_constants_leave_out_the_training_is_no_training(trained: Trained, given: str) -> None:
    epoch = f"sampler.set_epoch(epoch)\nturn(loader, True)\nif rank == 0:\n    turn(test_loader, {given})"
    text, findings = trained(top=TOP.format(rank="torch.distributed.get_rank()"), built=DISTRIBUTED, epoch=epoch)
    assert "        accelerator.backward(loss)\n" in text
    assert f"    if accelerator.is_main_process:\n        turn(test_loader, {given})\n" in text
    assert findings == []


@pytest.mark.parametrize("given", ["off", "OPTIONS['learn']", "MODE != 'valid'"])
def test_so_does_one_whose_constants_have_names(trained: Trained, given: str) -> None:
    top = (
        f"off = False\nMODE = 'valid'\nOPTIONS = {{'learn': False}}\n{TOP.format(rank='torch.distributed.get_rank()')}"
    )
    epoch = f"sampler.set_epoch(epoch)\nturn(loader, True)\nif rank == 0:\n    turn(test_loader, {given})"
    text, findings = trained(top=top, built=DISTRIBUTED, epoch=epoch)
    assert f"    if accelerator.is_main_process:\n        turn(test_loader, {given})\n" in text
    assert findings == []


def test_the_training_itself_under_the_rank_is_named(trained: Trained) -> None:
    epoch = "learns = epoch > 0\nif rank == 0:\n    turn(test_loader, learns)"
    _, findings = trained(top=TOP.format(rank="torch.distributed.get_rank()"), built=DISTRIBUTED, epoch=epoch)
    assert findings == ["local-decision"]


def test_batches_that_only_one_process_reads_go_to_the_device_as_they_come(trained: Trained) -> None:
    top = TOP.format(rank=READ).replace("        a, b = a.to(device), b.to(device)\n", "")
    text, findings = trained(top=top, epoch="if rank == 0:\n    print(hits(test_loader))")
    assert "        a, b = send_to_device((a, b), accelerator.device)\n" in text
    assert findings == []


@pytest.mark.parametrize(
    "wrap",
    [
        "from apex.parallel import DistributedDataParallel\nmodel = DistributedDataParallel(model.to(device))",
        "from apex import amp\nmodel, optimizer = amp.initialize(model.to(device), optimizer, opt_level='O2')",
    ],
)
def test_what_apex_does_beside_the_accelerator_is_refused_also_where_it_is_distributed(
    trained: Trained, wrap: str
) -> None:
    built = "\n".join([*DISTRIBUTED.split("\n")[:-2], wrap])
    epoch = "sampler.set_epoch(epoch)\nturn(loader, True)"
    _, findings = trained(top=TOP.format(rank="torch.distributed.get_rank()"), built=built, epoch=epoch)
    assert findings == ["apex"]
