"""
Names of Accelerate that mean nothing here yet.

Scripts may import them; each is a class that says, when it is called, that it is not there and what to do instead.
"""

from __future__ import annotations

import sys
from dis import opmap

from ..errors import missing
from .plugins import Later

_LARGE = "Models larger than the memory of one device are not supported yet: load the whole model on each device."
_SHARDED = (
    "Models are sharded by prepare, and their weights are whole in get_state_dict, save_model, save_state and "
    "load_state_dict: use those."
)
_DEEPSPEED = "DeepSpeed is not supported yet: leave it out."
_MEGATRON = "Megatron-LM is not supported yet: leave it out."
_FEW_BITS = "Quantised weights are not supported yet: leave it out."
_FP8 = 'fp8 by Transformer Engine is not supported yet: use mixed_precision="fp8" with AORecipeKwargs().'
_COMPILED = "Use TorchDynamoPlugin(use_regional_compilation=True): models are compiled in place by prepare."
_PRECISION = "Use accelerator.autocast() and accelerator.scaler."
_LAUNCHED = "Start processes with torchlift launch, or with notebook_launcher."
_PLACES = "Use torchlift env, or ask torch."
_CHUNKS = "Pipeline parallelism is not supported yet: leave it out."
_FILES = "Use accelerator.save_state and accelerator.load_state."
_SAVED = "Use accelerator.save_model: it writes tied weights once."
_WRAPPED = "Models are not wrapped here: use the model itself."

_NAMES: dict[str, str] = {
    _LARGE: """
        cpu_offload cpu_offload_with_hook disk_offload dispatch_model infer_auto_device_map load_checkpoint_and_dispatch
        attach_layerwise_casting_hooks OffloadedWeightsLoader PrefixedDataset offload_state_dict offload_weight
        load_offloaded_weight load_offloaded_weights save_offload_index extract_submodules_state_dict
        align_module_device calculate_maximum_sizes check_device_map check_tied_parameters_in_config
        check_tied_parameters_on_same_device get_balanced_memory get_max_layer_size get_max_memory retie_parameters
        ensure_weights_retied set_module_tensor_to_device get_state_dict_offloaded_model get_state_dict_from_offload
        clean_device_map get_module_leaves get_module_size_with_ties fallback_allocate CustomDtype
        compute_module_total_buffer_size get_non_persistent_buffers check_device_same
        ModelHook SequentialHook AlignDevicesHook CpuOffload UserCpuOffloadHook LayerwiseCastingHook
        add_hook_to_module remove_hook_from_module remove_hook_from_submodules attach_align_device_hook
        attach_execution_device_hook attach_align_device_hook_on_blocks set_module_tensor_to_device named_module_tensors
    """,
    _SHARDED: """
        load_fsdp_model load_fsdp_optimizer save_fsdp_model save_fsdp_optimizer fsdp2_apply_ac
        fsdp2_canonicalize_names fsdp2_load_full_state_dict fsdp2_prepare_model fsdp2_switch_optimizer_parameters
        get_fsdp2_grad_scaler
        ensure_weights_retied get_model_tp_size model_has_dtensor
        get_parameters_from_modules
    """,
    _DEEPSPEED: """
        GatheredParameters compile_regions_deepspeed deepspeed_required prepare_deepspeed_cmd_env DeepSpeedEngineWrapper
        DeepSpeedOptimizerWrapper DeepSpeedSchedulerWrapper DummyOptim DummyScheduler HfDeepSpeedConfig
        get_active_deepspeed_plugin map_pytorch_optim_to_deepspeed
    """,
    _MEGATRON: """
        AbstractTrainStep BertTrainStep GPTTrainStep T5TrainStep MegatronLMDummyDataLoader MegatronLMDummyScheduler
        MegatronEngine MegatronLMOptimizerWrapper MegatronLMSchedulerWrapper add_model_config_to_megatron_parser
        avg_losses_across_data_parallel_group gather_across_data_parallel_groups
    """,
    _FEW_BITS: "load_and_quantize_model has_4bit_bnb_layers",
    _FP8: "apply_fp8_autowrap contextual_fp8_autocast convert_model has_transformer_engine_layers",
    _COMPILED: "compile_regions compile_regions_fsdp2 has_compiled_regions",
    _PRECISION: "get_grad_scaler get_mixed_precision_context_manager",
    _LAUNCHED: """
        PrepareForLaunch prepare_multi_gpu_env prepare_sagemager_args_inputs prepare_simple_launcher_cmd_env prepare_tpu
        install_xla TORCH_LAUNCH_PARAMS TORCH_DISTRIBUTED_OPERATION_TYPES
    """,
    _PLACES: """
        are_libraries_initialized check_cuda_p2p_ib_support get_cpu_distributed_information get_gpu_info
        set_numa_affinity override_numa_affinity get_driver_version CPUInformation
        XPU_PROFILING_AVAILABLE_PYTORCH_VERSION MITA_PROFILING_AVAILABLE_PYTORCH_VERSION
    """,
    _CHUNKS: "prepare_pippy build_pipeline find_pippy_batch_size generate_device_map pippy_forward",
    _SAVED: "clean_state_dict_for_safetensors",
    _FILES: "save_accelerator_state load_accelerator_state save_custom_state load_custom_state",
    _WRAPPED: """
        ConvertOutputsToFp32 chained_operation verify_operation DataLoaderAdapter get_module_children_bottom_up
        move_to_device patch_optimizer_step
    """,
}

_SENTENCES = {name: sentence for sentence, names in _NAMES.items() for name in names.split()}


def _class(name: str) -> type[Later]:
    sentence = _SENTENCES[name]
    return type(
        name, (Later,), {"instead": sentence, "__doc__": f"Not supported yet. {sentence}", "__module__": __name__}
    )


_MADE: dict[str, type[Later]] = {}


def absent(name: str) -> type[Later]:
    """
    What a module answers for a name that it does not have.

    Raises:
        AttributeError: Accelerate has no such name either.
        ImportError: the same, in `from ... import name`: there Python would replace the text of an AttributeError.
    """
    if name not in _SENTENCES:
        said = f"torchlift.runtime has no {name!r} in this module"
        if name.startswith("_"):
            raise AttributeError(said)
        frame = sys._getframe(1)
        said = missing(said, name, frame.f_globals.get("__all__", ()))
        while frame.f_back is not None and frame.f_code.co_name == "__getattr__":
            frame = frame.f_back
        if frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]:
            raise ImportError(said, name=name)
        raise AttributeError(said)
    if name not in _MADE:
        _MADE[name] = _class(name)
    return _MADE[name]
