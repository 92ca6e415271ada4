"""
Read by every interpreter of a script that opens its process group by itself (`PYTHONPATH`), before the script.

torch's DistributedDataParallel may be the last to hold a group of gloo when the script has destroyed it. Its reducer
then joins gloo's threads while it holds the interpreter's lock, and a thread that is just letting go of the tensors of
the last collective call waits for that lock: on a busy machine one run in sixty never ends (torch 2.13). Here python
holds the group, to the end. A process whose script has closed its group and come to its end leaves at once: where the
interpreter is taken down, a thread of gloo that asks for the lock ends the process ("terminate called without an active
exception", pytorch#190489).
"""

import atexit
import os
import sys

import torch.distributed as dist

kept = []
statuses = []
destroy = dist.destroy_process_group
end = sys.exit


def destroy_process_group(group=None):
    kept.extend(dist.distributed_c10d._world.pg_map)
    destroy(group)


def note_and_exit(status=None):
    statuses.append(status)
    end(status)


@atexit.register
def leave():
    failed = any(statuses) or getattr(sys, "last_value", None) is not None
    if kept and not failed:  # a failure keeps its exit status
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


dist.destroy_process_group = dist.distributed_c10d.destroy_process_group = destroy_process_group
sys.exit = note_and_exit
