"""
Bugs that make two processes do different things: every one of them must end in an error that names both lines.

One process imports torch, and forks two for every bug; all bugs run at the same time. Prints, for every bug, what each
process saw: [seconds, kind of error, message].
"""

import json
import os
import sys
import tempfile
import time
import traceback

import torch
from torch.utils.data import DataLoader, TensorDataset

from torchlift.runtime import Accelerator, DataLoaderConfiguration, DistributedDataParallelKwargs
from torchlift.runtime.process.system import get_free_port

since = [0.0]


def now():
    """From here on it is counted how long a bug stays unnamed."""
    since[0] = time.time()


def small():
    net = torch.nn.Linear(2, 2)
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


def loader():
    return DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2, shuffle=True)


def gather_on_the_main_process_only(accelerator):
    if accelerator.is_main_process:
        accelerator.gather(torch.ones(2))
    accelerator.wait_for_everyone()


def metrics_against_a_barrier(accelerator):
    if accelerator.is_main_process:
        accelerator.wait_for_everyone()
    accelerator.gather_for_metrics(torch.ones(2))


def another_type(accelerator):
    accelerator.gather(torch.ones(2, dtype=torch.float32 if accelerator.is_main_process else torch.float64))
    accelerator.wait_for_everyone()


def another_number_of_dimensions(accelerator):
    accelerator.pad_across_processes(torch.ones((2, 2) if accelerator.is_main_process else (4,)))
    accelerator.wait_for_everyone()


def another_number_of_tensors(accelerator):
    accelerator.reduce([torch.ones(1)] * (1 + accelerator.process_index))


def another_operation(accelerator):
    accelerator.reduce(torch.ones(1), "sum" if accelerator.is_main_process else "mean")
    accelerator.wait_for_everyone()


def a_backward_that_one_process_leaves_out(accelerator):
    net, _ = accelerator.prepare(*small())
    now()
    loss = net(torch.ones(1, 2)).sum()
    if accelerator.is_main_process:
        accelerator.backward(loss)
    accelerator.wait_for_everyone()


def a_loop_that_one_process_leaves_early(accelerator):
    net, _ = accelerator.prepare(*small())
    now()
    for step in range(4):
        accelerator.backward(net(torch.ones(1, 2)).sum())
        if step == 1 and accelerator.process_index == 1:
            break
    accelerator.reduce(torch.ones(()))


def one_process_ends_the_script(accelerator):
    if accelerator.process_index == 1:
        return
    accelerator.gather(torch.ones(2))


def objects_against_a_new_pass(accelerator):
    batches = accelerator.prepare(loader())
    if accelerator.is_main_process:
        accelerator.gather_for_metrics(["text"], use_gather_object=True)
    for _ in batches:
        pass
    accelerator.wait_for_everyone()


def another_scheduler_of_windows(accelerator):
    own = Accelerator(gradient_accumulation_steps=1 + accelerator.process_index)
    net, opt = own.prepare(*small())
    now()
    for _ in range(4):
        with own.accumulate(net):
            own.backward(net(torch.ones(1, 2)).sum())
            opt.step()
    own.wait_for_everyone()


def a_checkpoint_on_the_main_process_only(accelerator):
    accelerator.prepare(*small())
    now()
    if accelerator.is_main_process:
        accelerator.save_state(tempfile.mkdtemp())
    accelerator.wait_for_everyone()


def an_exception_while_the_others_wait(accelerator):
    try:
        with accelerator.main_process_first():
            if accelerator.is_main_process:
                raise ValueError("on purpose")
    except ValueError:
        accelerator.gather(torch.ones(1))
    else:
        assert not accelerator.is_main_process, "the error was swallowed"
    accelerator.wait_for_everyone()


def two_models_in_another_order(accelerator):
    nets = [accelerator.prepare(torch.nn.Linear(2, 2)) for _ in range(2)]
    now()
    order = nets if accelerator.is_main_process else nets[::-1]
    for net in order:
        accelerator.backward(net(torch.ones(1, 2)).sum())
    time.sleep(2)  # nothing waits here: their gradients have gone past one another
    accelerator.wait_for_everyone()


def a_loop_over_a_loader_that_one_process_reads(accelerator):
    own = Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
    batches = own.prepare(loader())
    for number, _ in enumerate(batches):
        if number == 1 and own.process_index == 1:
            own.gather(torch.ones(1))


def a_guard_around_clipping_and_saving(accelerator):
    net, _ = accelerator.prepare(*small())
    now()
    accelerator.backward(net(torch.ones(1, 2)).sum())
    if accelerator.is_main_process and float(accelerator.clip_grad_norm_(net.parameters(), 1.0)) > 0:
        accelerator.check_trigger()
    accelerator.wait_for_everyone()


def other_lengths_of_objects(accelerator):
    accelerator.broadcast_object_list([1, 2], from_process=accelerator.process_index)
    accelerator.wait_for_everyone()


BUGS = [
    two_models_in_another_order,
    a_loop_over_a_loader_that_one_process_reads,
    a_guard_around_clipping_and_saving,
    other_lengths_of_objects,
    a_checkpoint_on_the_main_process_only,
    an_exception_while_the_others_wait,
    gather_on_the_main_process_only,
    metrics_against_a_barrier,
    another_type,
    another_number_of_dimensions,
    another_number_of_tensors,
    another_operation,
    a_backward_that_one_process_leaves_out,
    a_loop_that_one_process_leaves_early,
    one_process_ends_the_script,
    objects_against_a_new_pass,
    another_scheduler_of_windows,
]


def child(bug, rank, port, out):
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.dup2(out, 2)
    options = [DistributedDataParallelKwargs(bucket_cap_mb=1)] if "reducer" in sys.argv else None
    accelerator = Accelerator(kwargs_handlers=options)
    accelerator.wait_for_everyone()
    now()
    try:
        bug(accelerator)
        accelerator.end_training()
        text = "RuntimeError: nothing was raised" if bug is not one_process_ends_the_script else ""
    except RuntimeError as error:
        text = "".join(traceback.format_exception_only(error))
    sys.stderr.write(f"{text}\n")
    sys.stderr.write(f"took {time.time() - since[0]:.2f}\n")
    sys.stderr.flush()
    os._exit(1)


def main():
    running = []
    for bug in BUGS:
        port = get_free_port()
        for rank in range(2):
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                child(bug, rank, port, write)
            os.close(write)
            running.append((bug.__name__, pid, read, time.time()))
    seen = {}
    for name, pid, read, start in running:
        with os.fdopen(read) as pipe:
            text = pipe.read()
        os.waitpid(pid, 0)
        seen.setdefault(name, []).append([time.time() - start, text])
    print("RESULT " + json.dumps(seen), flush=True)


main()
