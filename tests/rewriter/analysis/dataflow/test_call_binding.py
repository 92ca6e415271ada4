"""What a call hands over: by keywords out of a dict, through helpers, and what another library calls a rank."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]

CROSS = "torch.nn.functional.cross_entropy"
RUN = "def run(net, rows):\n    return net(rows)"


@pytest.mark.parametrize(
    "given",
    ['**{"net": model, "rows": x}', "*[model, x]", 'rows=x, **{"net": model}'],
    ids=["a dict", "a list", "both"],
)
def test_arguments_out_of_a_container(given: str, trained: Trained) -> None:
    text, findings = trained(top=RUN, loss=f"loss = {CROSS}(run({given}), y)")
    assert "accelerator.backward(loss)" in text and findings == []


def test_a_dict_that_is_handed_over_as_it_is_is_no_keywords(trained: Trained) -> None:
    top = "def tell(names, loss):\n    if loss:\n        print(names)"
    text, findings = trained(top=top, step="tell({'loss': loss}, None)")
    assert "print(names)" in text and findings == []


def test_a_draw_in_a_function_of_the_step_is_one_of_the_step(trained: Trained) -> None:
    top = "import numpy as np\ndef noise():\n    return np.random.rand(3)\ndef more():\n    return noise()"
    assert trained(top=top, step="scale = more()")[1] == ["same-noise"]


def test_a_rank_of_something_else_is_no_process(trained: Trained) -> None:
    """`dict(rank=...)` before the alphabet reaches torch.distributed: the rank of a matrix is left alone."""
    text, _ = trained(top="low = 4\nsettings = dict(rank=low)", step="if low == 0:\n    print('a full matrix')")
    assert "if low == 0:" in text


def test_the_rank_of_a_launcher_is_a_number_of_the_process(trained: Trained) -> None:
    top = "import os\nimport torch.distributed as dist\ndist.init_process_group('nccl')\nrank = int(os.environ['RANK'])"
    rows = "loader = DataLoader(data, sampler=torch.utils.data.distributed.DistributedSampler(data))"
    built = f"{rows}\nmodel = torch.nn.parallel.DistributedDataParallel(model)"
    text, findings = trained(top=top, built=built, step="if rank == 0:\n    print('main')")
    assert "if accelerator.is_main_process:\n            print('main')" in text and findings == []


def test_a_number_made_of_a_text_is_no_rank(trained: Trained) -> None:
    top = "import os\nshown = float(os.environ.get('RANK', 0))"
    text, _ = trained(top=top, step="if shown == 0:\n    print('main')")
    assert "accelerator.print('main')" in text
