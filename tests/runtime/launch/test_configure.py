"""`torchlift config`, `env` and `test`, and what `launch` takes from a file."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml
from click.testing import CliRunner

from torchlift.runtime.config.cluster import ClusterConfig, default_path, from_mapping, read_config
from torchlift.runtime.errors import ConfigError, LaunchError, NotAvailableYet
from torchlift.runtime.launch.command import main
from torchlift.runtime.launch.configure import write_basic_config
from torchlift.runtime.launch.options import Options, job_of
from torchlift.runtime.launch.plan import Job, plan

COMMAND = [sys.executable, "-m", "torchlift.runtime.launch.command"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "torchlift" / "default_config.yaml"


def invoke(*arguments, **more):
    return CliRunner().invoke(main, list(map(str, arguments)), **more)


def job(environment=None, **options):
    return job_of(Options(**options), ("x.py",), environment or {"XDG_CACHE_HOME": "/nowhere"})


def test_questions_and_answers(home):
    done = invoke("config", input="1\ny\n3\nbf16\ny\nn\n")
    assert done.exit_code == 0, done.output
    assert str(home) in done.output
    expected = ClusterConfig(num_processes=3, mixed_precision="bf16", use_cpu=True, split_batches=True)
    assert read_config(home) == expected
    assert job({"XDG_CACHE_HOME": str(home.parents[1])}).num_processes == 3


def test_questions_for_several_machines(tmp_path):
    done = invoke("config", "--config_file", tmp_path / "x.yaml", input="2\n1\nhost\n29501\nn\n4\nno\nn\nn\n")
    assert done.exit_code == 0, done.output
    config = read_config(tmp_path / "x.yaml")
    assert (config.num_machines, config.machine_rank, config.main_process_ip) == (2, 1, "host")
    assert (config.num_processes, config.main_process_port, config.mixed_precision) == (4, 29501, "no")


def test_a_file_without_questions(home, tmp_path):
    assert invoke("config", "default", "--mixed_precision", "fp16").exit_code == 0
    assert read_config(home).mixed_precision == "fp16"
    done = invoke("config", "default")
    assert "was not changed" in done.output and read_config(home).mixed_precision == "fp16"
    assert write_basic_config("bf16", tmp_path / "mine.yaml") == tmp_path / "mine.yaml"
    assert write_basic_config(save_location=tmp_path / "mine.yaml") is False
    assert write_basic_config() is False


def test_the_place_of_the_file():
    assert str(default_path({"XDG_CACHE_HOME": "/c"})) == "/c/torchlift/default_config.yaml"
    assert str(default_path({})).endswith("/.cache/torchlift/default_config.yaml")


FROM_ACCELERATE = """
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_CPU
downcast_bf16: 'no'
enable_cpu_affinity: false
machine_rank: 0
main_training_function: main
mixed_precision: no
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
fsdp_config: {}
gpu_ids: 0,1
dynamo_config:
  dynamo_backend: EAGER
"""


def test_a_file_of_accelerate(tmp_path):
    (tmp_path / "x.yaml").write_text(FROM_ACCELERATE)
    found = job(config_file=str(tmp_path / "x.yaml"))
    assert (found.num_processes, found.mixed_precision, found.cpu) == (2, "no", True)
    assert (found.gpu_ids, found.dynamo) == ("0,1", {"backend": "eager"})


@pytest.mark.parametrize(
    ("keys", "error", "words"),
    [
        ({"num_procs": 2, "z": 1}, ConfigError, r"unknown keys \(\['num_procs', 'z'\]\)"),
        ({"dynamo_config": {"dynamo_dance": 1}}, ConfigError, "dynamo_config.dynamo_dance"),
        ({"dynamo_config": {"dynamo_mode": "max"}}, ValueError, "max-autotune"),
        ({"compute_environment": "AMAZON_SAGEMAKER", "iam_role_name": "x"}, NotAvailableYet, "AMAZON_SAGEMAKER"),
        ({"megatron_lm_config": {"tp_degree": 2}}, NotAvailableYet, "Megatron-LM"),
        ({"distributed_type": "DEEPSPEED"}, NotAvailableYet, "DEEPSPEED"),
        ({"distributed_type": "MULTI"}, ValueError, "MULTI_GPU"),
        ({"distributed_type": "NO", "num_processes": 2}, ConfigError, "one process"),
        ({"compute_environment": "AMAZON_SAGEMAKER"}, NotAvailableYet, "LOCAL_MACHINE"),
        ({"mixed_precision": "fp12"}, ValueError, "bf16"),
        ({"num_processes": "two"}, ConfigError, "whole number"),
    ],
)
def test_what_a_file_cannot_say(keys, error, words):
    with pytest.raises(error, match=words):
        from_mapping(keys, "x.yaml")


def test_files_that_cannot_be_read(tmp_path):
    for text, words in (("a: [", "not valid YAML"), ("- 1", "no keys")):
        (tmp_path / "x.yaml").write_text(text)
        done = invoke("launch", "--config-file", tmp_path / "x.yaml", __file__)
        assert done.exit_code == 3 and words in done.output
    done = invoke("launch", "--config_file", tmp_path / "none.yaml", __file__)
    assert done.exit_code == 3 and "torchlift config" in done.output


def test_options_win_over_the_file(tmp_path):
    config = {"num_processes": 4, "mixed_precision": "bf16", "main_process_port": 5, "gradient_accumulation_steps": 2}
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(config))
    path = str(tmp_path / "x.yaml")
    assert job(config_file=path).port == 5
    found = job(config_file=path, num_processes=3, mixed_precision="no", main_process_port=0)
    assert (found.num_processes, found.mixed_precision, found.port) == (3, "no", 0)
    assert found.gradient_accumulation_steps == 2
    assert job(gpu_ids="0,2").num_processes == 2
    assert job().num_processes == 1


@pytest.mark.parametrize("options", [{"cpu": True, "multi_gpu": True}, {"multi_gpu": True}])
def test_options_that_contradict(options):
    with pytest.raises(LaunchError):
        job(**options)


def test_the_plan_of_a_machine_among_several():
    asked = Job(num_processes=6, num_machines=2, machine_rank=1, address="host", port=1, command=("x",), gpu_ids="3,4")
    planned = plan(asked, {}, cores=6)
    places = [(p.environment["RANK"], p.environment["LOCAL_RANK"]) for p in planned]
    assert places == [("3", "0"), ("4", "1"), ("5", "2")]
    variables = planned[0].environment
    assert (variables["WORLD_SIZE"], variables["LOCAL_WORLD_SIZE"], variables["MASTER_ADDR"]) == ("6", "3", "host")
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["OMP_NUM_THREADS"]) == ("3,4", "2")
    more = Job(
        num_processes=1, port=1, command=("ls",), no_python=True, threads=3, restart=1, dynamo={"backend": "eager"}
    )
    (one,) = plan(more, {}, cores=1)
    assert one.command == ("ls",)
    assert one.environment["OMP_NUM_THREADS"] == "3" and one.environment["TORCHELASTIC_RESTART_COUNT"] == "1"
    assert one.environment["TORCHLIFT_DYNAMO_BACKEND"] == "eager"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"num_processes": 3, "num_machines": 2}, "divided evenly"),
        ({"num_processes": 2, "num_machines": 2, "machine_rank": 2}, "from 0 to 1"),
        ({"num_processes": 2, "num_machines": 2}, "--main-process-port"),
        ({"num_processes": 1, "module": True, "no_python": True}, "contradict"),
    ],
)
def test_plans_that_cannot_be(more, words):
    with pytest.raises(LaunchError, match=words):
        plan(Job(command=("x",), **more), {})


def test_a_program_of_its_own_and_restarts(tmp_path):
    script = tmp_path / "flaky.sh"
    script.write_text(f"echo run >> {tmp_path}/runs\ntest $(wc -l < {tmp_path}/runs) -ge 3\n")
    command = [*COMMAND, "launch", "--no_python", "-q", "--max-restarts", "3", "sh", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "runs").read_text() == "run\n" * 3


def test_env():
    done = invoke("env")
    assert done.exit_code == 0
    for words in ("- torch: ", "- Python: ", "- Accelerator: ", "- Configuration: "):
        assert words in done.output


@pytest.mark.slow
def test_the_self_test():
    done = subprocess.run([*COMMAND, "test", "--cpu"], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert "2 processes on cpu trained like one" in done.stdout and "Test is a success!" in done.stdout


@pytest.mark.parametrize(
    ("option", "ability"),
    [
        ("--zero_stage=3", "DeepSpeed"),
        ("--use_megatron_lm", "Megatron-LM"),
        ("--fp8_margin=1", "fp8 by Transformer Engine"),
        ("--tpu_name=a", "a TPU pod"),
        ("--enable_cpu_affinity", "binding processes to cores"),
    ],
)
def test_options_that_come_later(option, ability):
    done = invoke("launch", option, __file__)
    assert done.exit_code == 3 and ability in done.output and "Leave the option out." in done.output


def test_options_of_a_script_are_its_own(tmp_path):
    script = tmp_path / "x.sh"
    script.write_text('echo "$@" $TORCHLIFT_DYNAMO_MODE $TORCHLIFT_DYNAMO_USE_DYNAMIC')
    command = "launch --dynamo_mode reduce-overhead --dynamo_use_dynamic --monitor_interval 1 --role x --no_python sh"
    done = subprocess.run(
        [*COMMAND, *command.split(), script, "--use_fsdp"], capture_output=True, text=True, timeout=400
    )
    assert done.stdout == "--use_fsdp reduce-overhead true\n", done.stderr


def test_settings_of_fp8_and_tf32_reach_the_processes(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("mixed_precision: fp8\nfp8_config:\n  backend: ao\n  pad_inner_dim: false\n")
    job = job_of(Options(config_file=str(file), tf32=False), ("x",), {})
    environment = plan(job, {})[0].environment
    assert {name: environment[name] for name in environment if "FP8" in name or "TF32" in name} == {
        "ACCELERATE_FP8_BACKEND": "ao",
        "ACCELERATE_FP8_PAD_INNER_DIM": "False",
        "TORCHLIFT_TF32": "0",
    }
    assert "TORCHLIFT_TF32" not in plan(job_of(Options(), ("x",), {}), {})[0].environment


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fp8_config: {backend: TE}", "backend TE of fp8_config"),
        ("fp8_config: {margin: 2}", "margin of fp8_config"),
    ],
)
def test_settings_of_fp8_by_other_packages(tmp_path, text, words):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(NotAvailableYet, match=f"{words}.* Set the backend to AO: .*pip install"):
        read_config(file)
    with pytest.raises(NotAvailableYet, match="backend MSAMP of --fp8-backend"):
        job_of(Options(fp8_backend="msamp"), ("x",), {})
