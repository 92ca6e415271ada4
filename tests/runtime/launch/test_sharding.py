"""Sharded weights asked for on the command line, in a file, and by `torchlift config`."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml
from click.testing import CliRunner

from torchlift.runtime.config.cluster import from_mapping, read_config
from torchlift.runtime.errors import ConfigError, LaunchError, NotAvailableYet, TorchliftError
from torchlift.runtime.launch.command import main
from torchlift.runtime.launch.options import Options, job_of
from torchlift.runtime.launch.plan import plan

COMMAND = [sys.executable, "-m", "torchlift.runtime.launch.command"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "torchlift" / "default_config.yaml"


def invoke(*arguments, **more):
    return CliRunner().invoke(main, list(map(str, arguments)), **more)


def told(*, file=None, tmp_path=None, processes=4, **options):
    """The variables about sharding that a job's processes get."""
    if file is not None:
        (tmp_path / "x.yaml").write_text(yaml.safe_dump(file))
        options["config_file"] = str(tmp_path / "x.yaml")
    job = job_of(Options(num_processes=processes, **options), ("x.py",), {"XDG_CACHE_HOME": "/nowhere"})
    first = plan(job, {})[0].environment
    beginnings = ("FSDP_", "PARALLELISM_CONFIG_", "ACCELERATE_USE_")
    return {name: value for name, value in first.items() if name.startswith(beginnings)}


FILE = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "FSDP",
    "fsdp_config": {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": False,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_transformer_layer_cls_to_wrap": "BertLayer",
        "fsdp_offload_params": False,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_ignored_modules": None,
    },
    "parallelism_config": {
        "parallelism_config_dp_replicate_size": 2,
        "parallelism_config_dp_shard_size": 2,
        "parallelism_config_tp_size": 1,
    },
}


def test_a_file_of_accelerate(tmp_path):
    assert told(file=FILE, tmp_path=tmp_path) == {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
        "FSDP_RESHARD_AFTER_FORWARD": "false",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_TRANSFORMER_CLS_TO_WRAP": "BertLayer",
        "FSDP_OFFLOAD_PARAMS": "false",
        "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
        "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
        "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": "2",
        "PARALLELISM_CONFIG_DP_SHARD_SIZE": "2",
        "PARALLELISM_CONFIG_TP_SIZE": "1",
    }


def test_a_file_in_the_words_of_version_1(tmp_path):
    block = {
        "fsdp_sharding_strategy": "SHARD_GRAD_OP",
        "fsdp_backward_prefetch": "BACKWARD_PRE",
        "fsdp_forward_prefetch": False,
        "min_num_params": "1e8",
        "fsdp_use_orig_params": True,
    }
    found = told(file={"distributed_type": "FSDP", "fsdp_config": block}, tmp_path=tmp_path)
    assert found["FSDP_SHARDING_STRATEGY"] == "SHARD_GRAD_OP" and found["FSDP_MIN_NUM_PARAMS"] == "100000000"


def test_options_win_over_the_file(tmp_path):
    found = told(file=FILE, tmp_path=tmp_path, sharding={"fsdp_reshard_after_forward": "FULL_SHARD"})
    assert found["FSDP_RESHARD_AFTER_FORWARD"] == "true" and found["FSDP_VERSION"] == "2"


def test_nothing_is_said_where_nothing_is_asked_for():
    assert told() == {}
    assert told(use_fsdp=True) == {"ACCELERATE_USE_FSDP": "true"}


@pytest.mark.parametrize(
    ("block", "error", "words"),
    [
        (
            {"fsdp_config": {"fsdp_wheels": 3}},
            ConfigError,
            r"fsdp_config in x.yaml has unknown keys \(\['fsdp_wheels'\]",
        ),
        ({"fsdp_config": {"fsdp_version": 3}}, TorchliftError, "fsdp_version is 3; it must be one of: 1, 2"),
        ({"fsdp_config": {"fsdp_offload_params": "perhaps"}}, TorchliftError, "fsdp_offload_params is 'perhaps'"),
        ({"fsdp_config": {"fsdp_sharding_strategy": "NO_SHARD"}}, NotAvailableYet, "without FSDP"),
        ({"fsdp_config": {"fsdp_sharding_strategy": "HYBRID_SHARD"}}, NotAvailableYet, "dp_replicate_size"),
        ({"fsdp_config": {"fsdp_auto_wrap_policy": "BY_HAND"}}, TorchliftError, "SIZE_BASED_WRAP"),
        ({"fsdp_config": {"fsdp_state_dict_type": "LOCAL_STATE_DICT"}}, TorchliftError, "FULL_STATE_DICT"),
        ({"fsdp_config": {"fsdp_forward_prefetch": True}}, NotAvailableYet, "fsdp_forward_prefetch: True"),
        ({"fsdp_config": {"fsdp_min_num_params": "many"}}, ConfigError, "whole number from 0 on"),
        ({"fsdp_config": {"fsdp_version": 2}, "distributed_type": "MULTI_GPU"}, ConfigError, "distributed_type: FSDP"),
        ({"parallelism_config": {"parallelism_config_tp_size": 2}}, NotAvailableYet, "parallelism_config_tp_size: 2"),
        ({"parallelism_config": {"parallelism_config_dp_shard_size": 0}}, ConfigError, "from 1 on"),
        ({"parallelism_config": {"size": 2}}, ConfigError, "parallelism_config in x.yaml has unknown keys"),
    ],
)
def test_what_a_file_cannot_say(block, error, words):
    with pytest.raises(error, match=words):
        from_mapping(block, "x.yaml")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"sharding": {"fsdp_version": "2"}}, LaunchError, "--fsdp-version has no effect without --use-fsdp"),
        (
            {"use_fsdp": True, "sharding": {"parallelism_config_dp_shard_size": "2"}},
            LaunchError,
            "--parallelism-config-dp-shard-size has no effect without --use-parallelism-config",
        ),
        (
            {"use_parallelism_config": True, "sharding": {"parallelism_config_dp_shard_size": "3"}},
            ConfigError,
            r"the mesh has 3 processes \(dp_shard_size=3\), but the job has 4",
        ),
    ],
)
def test_what_options_cannot_say(options, error, words):
    with pytest.raises(error, match=words):
        told(**options)


def test_the_command_line_with_hyphens_and_underscores(tmp_path):
    script = tmp_path / "x.sh"
    names = ("ACCELERATE_USE_FSDP", "FSDP_VERSION", "FSDP_TRANSFORMER_CLS_TO_WRAP", "PARALLELISM_CONFIG_DP_SHARD_SIZE")
    script.write_text("echo " + " ".join(f"${name}" for name in names) + ' "$@"')
    command = "launch --use_fsdp --fsdp_version 2 --fsdp-transformer-layer-cls-to-wrap=Block,Head --num-processes 2 "
    command += "--use_parallelism_config --parallelism_config_dp_shard_size 2 --no_python sh"
    done = subprocess.run(
        [*COMMAND, *command.split(), script, "--fsdp_version"], capture_output=True, text=True, timeout=400
    )
    assert sorted(done.stdout.splitlines()) == ["true 2 Block,Head 2 --fsdp_version"] * 2, done.stderr


def test_a_bad_option_ends_the_command():
    done = invoke("launch", "--use-fsdp", "--fsdp-version", "5", __file__)
    assert done.exit_code == 3 and "fsdp_version is '5'; it must be one of: 1, 2" in done.output


def test_questions_and_answers(home, tmp_path):
    answers = ["1", "y", "4", "no", "n", "y", "y", "classes", "Block", "n", "y", "2"]
    done = invoke("config", input="\n".join(answers) + "\n")
    assert done.exit_code == 0, done.output
    written = yaml.safe_load(home.read_text())
    assert written["distributed_type"] == "FSDP"
    assert written["fsdp_config"]["fsdp_transformer_layer_cls_to_wrap"] == "Block"
    assert written["parallelism_config"]["parallelism_config_dp_shard_size"] == "2"
    config = read_config(home)
    assert config.shards and config.fsdp_config["fsdp_activation_checkpointing"] == "true"
    found = told(file=written, tmp_path=tmp_path)
    assert found["FSDP_AUTO_WRAP_POLICY"] == "TRANSFORMER_BASED_WRAP"


@pytest.mark.parametrize(
    ("chosen", "key"),
    [(["model"], None), (["size", "1000"], "fsdp_min_num_params"), (["none"], "fsdp_auto_wrap_policy")],
)
def test_further_answers(home, chosen, key):
    answers = ["1", "y", "2", "no", "n", "y", "n", *chosen, "n", "n", "1"]
    assert invoke("config", input="\n".join(answers) + "\n").exit_code == 0
    config = read_config(home)
    assert config.parallelism_config is None and config.fsdp_config["fsdp_reshard_after_forward"] == "false"
    assert key is None or key in config.fsdp_config


def test_replicas_that_do_not_divide_the_processes():
    answers = ["1", "y", "4", "no", "n", "y", "y", "model", "n", "n", "3"]
    done = invoke("config", input="\n".join(answers) + "\n")
    assert done.exit_code == 3 and "3 replicas do not divide 4 processes evenly" in done.output
