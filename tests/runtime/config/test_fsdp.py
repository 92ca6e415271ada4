"""The settings of sharded weights: from arguments, from the environment, and which modules they make units."""

from __future__ import annotations

import functools
import os
import pickle

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    CPUOffloadPolicy,
    MixedPrecision,
    MixedPrecisionPolicy,
    OffloadPolicy,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from torchlift.runtime import FullyShardedDataParallelPlugin as Plugin
from torchlift.runtime import ParallelismConfig
from torchlift.runtime.config.environment import read_environment
from torchlift.runtime.config.settings import resolve
from torchlift.runtime.errors import (
    ConfigError,
    MixedUseError,
    NotAvailableYet,
    TorchliftError,
    UnknownWordError,
    WrongKindError,
)
from torchlift.runtime.utils import disable_fsdp_ram_efficient_loading, enable_fsdp_ram_efficient_loading


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("FSDP_", "ACCELERATE_", "TORCHLIFT_")):
            monkeypatch.delenv(name)
    # those that a test makes the product set
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "")


@pytest.fixture
def plugin(monkeypatch):
    """`plugin(A="b", field=1)`: capitals are variables without their FSDP_, the rest are arguments."""

    def make(**given):
        for name, value in given.items():
            if name.isupper():
                monkeypatch.setenv(f"FSDP_{name}", value)
        return Plugin(**{name: value for name, value in given.items() if not name.isupper()})

    return make


# ---------------------------------------------------------------- defaults and fields


def test_what_it_says_when_nothing_is_said():
    found = Plugin()
    assert found.fsdp_version == 2 and found.reshard_after_forward is True and found.sharding_strategy is None
    assert found.auto_wrap_policy is None and found.mixed_precision_policy is None
    assert type(found.cpu_offload) is OffloadPolicy
    assert found.activation_checkpointing is False and found.cpu_ram_efficient_loading is False
    assert found.state_dict_type is StateDictType.SHARDED_STATE_DICT
    assert found.ignored_modules is None and found.transformer_cls_names_to_wrap is None


@pytest.mark.parametrize(
    ("given", "reshards"),
    [
        ({"reshard_after_forward": False}, False),
        ({"reshard_after_forward": "false"}, False),
        ({"RESHARD_AFTER_FORWARD": "False"}, False),
        ({"RESHARD_AFTER_FORWARD": "true"}, True),
        ({"RESHARD_AFTER_FORWARD": "false", "reshard_after_forward": True}, True),
        ({"reshard_after_forward": "SHARD_GRAD_OP"}, False),
        ({"sharding_strategy": "FULL_SHARD"}, True),
        ({"sharding_strategy": "shard_grad_op"}, False),
        ({"sharding_strategy": 2}, False),
        ({"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}, False),
        ({"reshard_after_forward": ShardingStrategy.SHARD_GRAD_OP}, False),
        ({"VERSION": "1", "SHARDING_STRATEGY": "2"}, False),
        ({"VERSION": "1", "SHARDING_STRATEGY": "SHARD_GRAD_OP", "RESHARD_AFTER_FORWARD": "true"}, False),
        ({"VERSION": "2", "SHARDING_STRATEGY": "SHARD_GRAD_OP"}, True),
        ({"fsdp_version": 1, "SHARDING_STRATEGY": "FULL_SHARD"}, True),
    ],
)
def test_resharding_in_the_words_of_both_versions(plugin, given, reshards):
    found = plugin(**given)
    assert found.reshard_after_forward is reshards and found.sharding_strategy is None and found.fsdp_version == 2


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"fsdp_version": 3}, UnknownWordError, "fsdp_version is 3; it must be one of: 1, 2"),
        ({"VERSION": "two"}, ConfigError, "FSDP_VERSION is 'two'; set it to a whole number"),
        ({"reshard_after_forward": "maybe"}, UnknownWordError, "reshard_after_forward is 'maybe'"),
        ({"reshard_after_forward": 4}, UnknownWordError, "reshard_after_forward is 4"),
        ({"sharding_strategy": "NO_SHARD"}, NotAvailableYet, "without FSDP"),
        ({"sharding_strategy": ShardingStrategy.HYBRID_SHARD}, NotAvailableYet, "ParallelismConfig"),
        ({"sharding_strategy": "HYBRID_SHARD_ZERO2"}, NotAvailableYet, "dp_replicate_size"),
        ({"sharding_strategy": "SHARD"}, UnknownWordError, "FULL_SHARD"),
        ({"sharding_strategy": "FULL_SHARD", "reshard_after_forward": False}, MixedUseError, "contradicts"),
        ({"forward_prefetch": True}, NotAvailableYet, "forward_prefetch"),
        ({"param_init_fn": print}, NotAvailableYet, "meta device"),
        ({"backward_prefetch": "SIDEWAYS"}, UnknownWordError, "BACKWARD_PRE"),
        ({"state_dict_type": "LOCAL_STATE_DICT"}, ValueError, "SHARDED_STATE_DICT"),
        ({"STATE_DICT_TYPE": "half"}, UnknownWordError, "SHARDED_STATE_DICT, FULL_STATE_DICT"),
        ({"auto_wrap_policy": "by hand"}, UnknownWordError, "TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP, NO_WRAP"),
        ({"OFFLOAD_PARAMS": "perhaps"}, UnknownWordError, "FSDP_OFFLOAD_PARAMS"),
        ({"cpu_offload": 3.5}, WrongKindError, "CPUOffloadPolicy"),
        ({"AUTO_WRAP_POLICY": "SIZE_BASED_WRAP", "MIN_NUM_PARAMS": "1e8"}, ConfigError, "FSDP_MIN_NUM_PARAMS"),
        ({"auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": 2.5}, WrongKindError, "whole number"),
        ({"min_num_params": -1}, ConfigError, "0 or more"),
        ({"mixed_precision_policy": "fp8"}, NotAvailableYet, "bf16"),
        ({"mixed_precision_policy": "half"}, UnknownWordError, "bf16, fp16, fp32"),
        ({"mixed_precision_policy": torch.int8}, UnknownWordError, "torch.bfloat16"),
        ({"mixed_precision_policy": 16}, WrongKindError, "MixedPrecisionPolicy"),
        ({"mixed_precision_policy": {"buffer_dtype": torch.float16}}, ConfigError, "Buffers keep their type"),
        ({"mixed_precision_policy": {"param_dtype": torch.int32}}, ConfigError, "param_dtype=torch.int32"),
        ({"mixed_precision_policy": MixedPrecision(keep_low_precision_grads=True)}, NotAvailableYet, "keep_low"),
        ({"activation_checkpointing": "sometimes"}, UnknownWordError, "activation_checkpointing"),
    ],
)
def test_what_cannot_be(plugin, given, error, words):
    with pytest.raises(error, match=words) as caught:
        plugin(**given)
    assert isinstance(caught.value, TorchliftError)


def test_what_changes_no_result_is_accepted_and_noted(caplog):
    caplog.set_level("INFO")
    found = Plugin(
        fsdp_version=1,
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        forward_prefetch="false",
        use_orig_params=False,
        sync_module_states=True,
        limit_all_gathers=False,
    )
    assert found.backward_prefetch is None and found.use_orig_params is None
    assert "used with version 2" in caplog.text
    assert "limit_all_gathers, use_orig_params, backward_prefetch of FSDP version 1 has no effect" in caplog.text


def test_state_dicts():
    for word in ("FULL_STATE_DICT", "full_state_dict", "1", 1, StateDictType.FULL_STATE_DICT):
        found = Plugin(state_dict_type=word)
        assert found.state_dict_type is StateDictType.FULL_STATE_DICT
        assert found.state_dict_config.rank0_only and found.optim_state_dict_config.offload_to_cpu
    assert Plugin(fsdp_version=1).state_dict_type is StateDictType.FULL_STATE_DICT
    found.set_state_dict_type("SHARDED_STATE_DICT")
    assert found.state_dict_type is StateDictType.SHARDED_STATE_DICT
    assert type(found.state_dict_config).__name__ == "ShardedStateDictConfig"


def test_state_dicts_of_the_environment(plugin):
    assert plugin(STATE_DICT_TYPE="FULL_STATE_DICT").state_dict_type is StateDictType.FULL_STATE_DICT


@pytest.mark.parametrize(
    "given",
    [{"cpu_offload": True}, {"OFFLOAD_PARAMS": "true"}, {"cpu_offload": CPUOffload(offload_params=True)}],
    ids=["argument", "environment", "version 1"],
)
def test_offloading(plugin, given):
    found = plugin(**given).cpu_offload
    assert isinstance(found, CPUOffloadPolicy) and found.pin_memory is torch.accelerator.is_available()
    assert plugin(**given).offloads and not Plugin(cpu_offload=False).offloads
    own = CPUOffloadPolicy(pin_memory=True)
    assert Plugin(cpu_offload=own).cpu_offload is own and type(Plugin(cpu_offload=False).cpu_offload) is OffloadPolicy


def test_switches_of_the_environment(plugin):
    found = plugin(ACTIVATION_CHECKPOINTING="true", CPU_RAM_EFFICIENT_LOADING="1")
    assert found.activation_checkpointing is True and found.cpu_ram_efficient_loading is True


def test_gradients_are_added_in_fp32_unless_a_type_is_given():
    bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32
    wanted = MixedPrecisionPolicy(param_dtype=bf16, reduce_dtype=fp32, output_dtype=fp32)
    for asked in ("bf16", bf16, {"param_dtype": bf16}, MixedPrecision(param_dtype=bf16, buffer_dtype=bf16)):
        assert Plugin(mixed_precision_policy=asked).mixed_precision_policy == wanted
    own = {"param_dtype": fp16, "reduce_dtype": "fp16", "output_dtype": fp16}
    found = Plugin(mixed_precision_policy=own).mixed_precision_policy
    assert found == MixedPrecisionPolicy(param_dtype=fp16, reduce_dtype=fp16, output_dtype=fp16)
    given = MixedPrecisionPolicy(param_dtype=fp16)
    plugin = Plugin(mixed_precision_policy=given)
    plugin.set_mixed_precision("bf16")
    assert plugin.mixed_precision_policy is given
    plugin.set_mixed_precision("bf16", override=True)
    assert plugin.mixed_precision_policy == wanted


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.int32])
def test_a_type_in_which_gradients_cannot_be_added(kind):
    with pytest.raises(ConfigError, match=r"reduce_dtype=torch\.\w+: gradients cannot be added in it"):
        Plugin(mixed_precision_policy=MixedPrecisionPolicy(reduce_dtype=kind))


def test_transformers_is_told_who_reads_weights(plugin):
    enable_fsdp_ram_efficient_loading()
    assert Plugin().cpu_ram_efficient_loading is True
    disable_fsdp_ram_efficient_loading()
    assert Plugin().cpu_ram_efficient_loading is False
    Plugin(cpu_ram_efficient_loading=True)
    assert os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "True" and os.environ["ACCELERATE_USE_FSDP"]


def test_a_plugin_can_be_pickled():
    assert pickle.loads(pickle.dumps(Plugin(transformer_cls_names_to_wrap="A,B"))) == Plugin(
        transformer_cls_names_to_wrap=["A", "B"]
    )


# ---------------------------------------------------------------- which modules


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2)
        self.grow = nn.Linear(width, 2 * width)
        self.shrink = nn.Linear(2 * width, width)

    def forward(self, x):
        return self.shrink(self.grow(self.attention(x, x, x)[0]))


class Text(nn.Module):
    def __init__(self, tied=False):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layers = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Linear(8, 11, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Pretrained(Text):
    _no_split_modules = ("Block", "BlockOfAnotherModel")


def names(plugin, model, **more):
    of = {id(module): name for name, module in model.named_modules()}
    return [of[id(unit)] for unit in plugin.units(model, **more)]


BLOCKS = ["layers.0", "layers.1"]


@pytest.mark.parametrize(
    ("given", "units"),
    [
        ({}, []),
        ({"auto_wrap_policy": "NO_WRAP"}, []),
        ({"transformer_cls_names_to_wrap": "Block"}, BLOCKS),
        ({"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": ["Block"]}, BLOCKS),
        ({"AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP", "TRANSFORMER_CLS_TO_WRAP": "Block"}, BLOCKS),
        ({"AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP"}, []),
        ({"auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": 200}, BLOCKS),
        ({"AUTO_WRAP_POLICY": "SIZE_BASED_WRAP", "MIN_NUM_PARAMS": "200"}, BLOCKS),
        ({"TRANSFORMER_CLS_TO_WRAP": "Block"}, BLOCKS),
        ({"MIN_NUM_PARAMS": "200"}, BLOCKS),
        ({"auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": 0}, []),
        ({"auto_wrap_policy": "SIZE_BASED_WRAP"}, []),
        ({"auto_wrap_policy": ModuleWrapPolicy({Block})}, BLOCKS),
        ({"auto_wrap_policy": lambda module, recurse, **_: recurse or isinstance(module, Block)}, BLOCKS),
        ({"transformer_cls_names_to_wrap": "Block,Embedding"}, ["embedding", *BLOCKS]),
    ],
)
def test_units(plugin, given, units):
    assert names(plugin(**given), Text()) == units


def test_units_are_given_innermost_first():
    found = names(Plugin(transformer_cls_names_to_wrap="Block, MultiheadAttention"), Text())
    assert found == ["layers.0.attention", "layers.0", "layers.1.attention", "layers.1"]


def test_what_the_model_names_itself(plugin):
    assert names(Plugin(), Pretrained()) == BLOCKS
    assert names(Plugin(auto_wrap_policy="TRANSFORMER_BASED_WRAP"), Pretrained()) == BLOCKS
    assert names(Plugin(auto_wrap_policy="NO_WRAP"), Pretrained()) == []
    assert names(plugin(AUTO_WRAP_POLICY="NO_WRAP"), Pretrained()) == []


def test_a_unit_keeps_no_parameter_that_others_use():
    given = Plugin(transformer_cls_names_to_wrap="Block,Embedding")
    assert names(given, Text(tied=True)) == BLOCKS
    shared = Text()
    shared.layers[1].grow.weight = shared.layers[0].grow.weight
    assert names(given, shared) == ["embedding"]


def test_no_unit_within_what_reads_the_weights_of_its_children():
    linear = Plugin(transformer_cls_names_to_wrap="Linear")
    assert names(linear, Block()) == ["grow", "shrink"]
    assert names(linear, nn.TransformerEncoderLayer(8, 2)) == []


def test_no_unit_that_is_never_called():
    with pytest.raises(ConfigError, match="ModuleList only holds modules"):
        Plugin(transformer_cls_names_to_wrap="ModuleList").units(Text())
    by_size = Plugin(auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=1000)
    assert names(by_size, Text()) == []


def test_a_class_that_no_model_has_is_an_error_with_the_nearest():
    with pytest.raises(ValueError, match=r"layer class Blok in the model Text\. Did you mean Block\?"):
        Plugin(transformer_cls_names_to_wrap="Blok").units(Text())
    with pytest.raises(ValueError, match=r"layer class T5Layer in the model Text\. Its classes are: Block, Emb"):
        Plugin(transformer_cls_names_to_wrap="T5Layer").units(Text())


def test_several_models_with_classes_of_their_own():
    generator, critic = Text(), nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    given = Plugin(transformer_cls_names_to_wrap=["Block", "Linear"])
    assert names(given, critic, models=[generator, critic]) == ["0", "2"]
    with pytest.raises(ConfigError, match="Block"):
        given.units(critic)


def test_ignored_modules(plugin):
    model = Text()
    for given in ({"ignored_modules": [model.layers[0]]}, {"IGNORED_MODULES": r"layers\.0"}):
        found = plugin(transformer_cls_names_to_wrap="Block", **given)
        assert names(found, model) == ["layers.1"]
        assert found.ignored_parameters(model) == set(model.layers[0].parameters())
        assert found.ignored_parameters(Text()) == set() or isinstance(found.ignored_modules, str)
    with pytest.raises(ConfigError, match="not a regular expression"):
        Plugin(ignored_modules="(")
    with pytest.raises(WrongKindError, match="it takes modules"):
        Plugin(ignored_modules=["layers"])


def test_the_policy_under_the_name_of_accelerate():
    for given in (
        {"transformer_cls_names_to_wrap": "Block"},
        {"auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": 9},
    ):
        found = Plugin(**given)
        found.set_auto_wrap_policy(Text())
        assert isinstance(found.auto_wrap_policy, functools.partial)
        assert names(found, Text())[-1] == "layers.1" or "min_num_params" in given
    found = Plugin(auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=0)
    found.set_auto_wrap_policy(Text())
    assert found.auto_wrap_policy is None


# ---------------------------------------------------------------- an accelerator's settings


def settings(monkeypatch, variables, **given):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    plain = {"device_placement": True, "split_batches": None, "mixed_precision": None, "cpu": True}
    more = {"gradient_accumulation_steps": 1, "dataloader_config": None, "step_scheduler_with_optimizer": True}
    return resolve(read_environment(), **plain, **more, **given)


def test_settings_take_arguments_and_the_environment(monkeypatch):
    assert settings(monkeypatch, {}).sharding is None and settings(monkeypatch, {}).mesh is None
    own, mesh = Plugin(), ParallelismConfig(dp_shard_size=2)
    found = settings(monkeypatch, {}, fsdp_plugin=own, parallelism_config=mesh)
    assert found.sharding is own and found.mesh is mesh
    found = settings(monkeypatch, {"ACCELERATE_USE_FSDP": "true", "FSDP_RESHARD_AFTER_FORWARD": "false"})
    assert found.sharding.reshard_after_forward is False and found.mesh is None


def test_a_mesh_that_shards_asks_for_fsdp(monkeypatch):
    assert settings(monkeypatch, {}, parallelism_config=ParallelismConfig(dp_shard_size=2)).sharding == Plugin()
    replicas = ParallelismConfig(dp_replicate_size=2)
    assert settings(monkeypatch, {}, parallelism_config=replicas).sharding is None
    with pytest.raises(MixedUseError, match="shards nothing"):
        settings(monkeypatch, {}, parallelism_config=replicas, fsdp_plugin=Plugin())
    variables = {"ACCELERATE_USE_PARALLELISM_CONFIG": "true", "PARALLELISM_CONFIG_DP_SHARD_SIZE": "3"}
    found = settings(monkeypatch, variables)
    assert found.mesh.dp_shard_size == 3 and found.sharding is not None
