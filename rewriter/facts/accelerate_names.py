"""
The names of Accelerate that this runtime has too. It has none that is not listed here.
"""

from __future__ import annotations

PREPARES = frozenset({"prepare", "prepare_model", "prepare_optimizer", "prepare_data_loader", "prepare_scheduler"})
"""Methods of the accelerator that prepare their arguments."""

# fmt: off
NAMES: dict[str, frozenset[str]] = {
    "": frozenset((
        "Accelerator AutocastKwargs DDPCommunicationHookType DataLoaderConfiguration "
        "DistributedDataParallelKwargs DistributedType GradScalerKwargs GradientAccumulationPlugin "
        "InitProcessGroupKwargs PartialState PrecisionType ProfileKwargs ProjectConfiguration "
        "TorchDynamoPlugin debug_launcher find_executable_batch_size load_checkpoint_in_model "
        "notebook_launcher set_seed skip_first_batches synchronize_rng_states "
    ).split()),
    "utils": frozenset((
        "AORecipeKwargs AutocastKwargs CannotPadNestedTensorWarning ComputeEnvironment DDPCommunicationHookType "
        "DataLoaderConfiguration DistributedDataParallelKwargs DistributedType DynamoBackend FP8BackendType "
        "GradScalerKwargs GradientAccumulationPlugin InitProcessGroupKwargs KwargsHandler LoggerType "
        "MODEL_NAME OPTIMIZER_NAME PROFILE_PATTERN_NAME PrecisionType ProfileKwargs ProjectConfiguration "
        "RNGType RNG_STATE_NAME SAFE_MODEL_NAME SAFE_WEIGHTS_INDEX_NAME SAFE_WEIGHTS_NAME "
        "SAFE_WEIGHTS_PATTERN_NAME SAMPLER_NAME SCALER_NAME SCHEDULER_NAME SageMakerDistributedType "
        "TORCH_DYNAMO_MODES TensorInformation TorchDynamoPlugin WEIGHTS_INDEX_NAME WEIGHTS_NAME "
        "WEIGHTS_PATTERN_NAME broadcast broadcast_object_list check_cuda_fp8_capability check_os_kernel "
        "clear_device_cache clear_environment compare_versions concatenate convert_dict_to_env_variables "
        "convert_model_to_fp8_ao filter_first_and_last_linear_layers has_ao_layers "
        "convert_file_size_to_int convert_outputs_to_fp32 convert_to_fp32 copy_tensor_to_devices "
        "extract_model_from_parallel find_batch_size find_device find_executable_batch_size gather "
        "gather_object get_data_structure get_free_port get_int_from_env get_shape honor_type "
        "ignorant_find_batch_size initialize_tensors is_4bit_bnb_available is_8bit_bnb_available "
        "is_aim_available is_amdsmi_available is_bf16_available is_bitsandbytes_multi_backend_available "
        "is_bnb_available is_boto3_available is_clearml_available is_comet_ml_available is_compiled_module "
        "is_cuda_available is_datasets_available is_deepspeed_available is_dvclive_available "
        "is_fp16_available is_fp8_available is_habana_gaudi1 is_hpu_available is_import_timer_available "
        "is_lomo_available is_matplotlib_available is_megatron_lm_available is_mlflow_available "
        "is_mlu_available is_mps_available is_msamp_available is_musa_available is_namedtuple "
        "is_neuron_available is_npu_available is_numpy_available is_pandas_available is_peft_available "
        "is_pippy_available is_port_in_use is_pynvml_available is_pytest_available is_rich_available "
        "is_rocm_available is_sagemaker_available is_schedulefree_available is_sdaa_available "
        "is_swanlab_available is_tensor_information is_tensorboard_available is_timm_available "
        "is_torch_distributed_available is_torch_tensor is_torch_version is_torch_xla_available "
        "is_torchao_available is_torchdata_available is_torchdata_stateful_dataloader_available "
        "is_torchvision_available is_tqdm_available is_trackio_available is_transformer_engine_available "
        "is_transformer_engine_mxfp8_available is_transformers_available is_triton_available "
        "is_wandb_available is_weights_only_available is_xccl_available is_xpu_available listify load "
        "load_checkpoint_in_model load_state_dict pad_across_processes pad_input_tensors "
        "parse_choice_from_env parse_flag_from_env patch_environment purge_accelerate_environment "
        "recursively_apply reduce release_memory save send_to_device set_seed should_reduce_batch_size "
        "slice_tensors str_to_bool synchronize_rng_state synchronize_rng_states tqdm wait_for_everyone "
        "write_basic_config "
    ).split()),
    "state": frozenset((
        "AcceleratorState DistributedType GradientState PartialState "
    ).split()),
    "data_loader": frozenset((
        "BatchSamplerShard DataLoaderDispatcher DataLoaderShard DataLoaderStateMixin IterableDatasetShard "
        "SeedableRandomSampler SkipBatchSampler SkipDataLoader prepare_data_loader skip_first_batches "
    ).split()),
    "optimizer": frozenset((
        "AcceleratedOptimizer "
    ).split()),
    "scheduler": frozenset((
        "AcceleratedScheduler "
    ).split()),
    "logging": frozenset((
        "get_logger MultiProcessAdapter "
    ).split()),
    "launchers": frozenset((
        "debug_launcher notebook_launcher "
    ).split()),
    "local_sgd": frozenset((
        "LocalSGD "
    ).split()),
    "tracking": frozenset((
        "AimTracker ClearMLTracker CometMLTracker DVCLiveTracker GeneralTracker Inert JSONLinesTracker "
        "LOGGER_TYPE_TO_CLASS LoggerType MLflowTracker SwanLabTracker TensorBoardTracker TrackioTracker "
        "WandBTracker filter_trackers get_available_trackers on_main_process register_tracker_class "
    ).split()),
}
"""For each module of Accelerate, below its top, the names that can be imported from the same place here."""
ARGUMENTS = frozenset((
    "device_placement split_batches mixed_precision gradient_accumulation_steps cpu dataloader_config "
    "rng_types log_with project_dir project_config gradient_accumulation_plugin "
    "step_scheduler_with_optimizer kwargs_handlers dynamo_backend dynamo_plugin kwarg_handler "
    "step_with_optimizer "
).split())
"""Keywords of the constructor that this runtime supports."""
MEMBERS = frozenset((
    "accumulate autocast backward broadcast broadcast_object_list check_breakpoint check_trigger clear "
    "clip_grad_norm_ clip_grad_value_ device distributed_type end_training even_batches free_memory "
    "gather gather_for_metrics get_state_dict get_tracker gradient_accumulation_steps gradient_state "
    "init_trackers is_last_process is_local_main_process is_main_process join_uneven_inputs load_state "
    "local_main_process_first local_process_index log log_with logging_dir main_process_first "
    "mark_forward_method maybe_context_parallel mixed_precision no_sync num_processes on_last_process "
    "on_local_main_process on_local_process on_main_process on_process optimizer_step_was_skipped "
    "pad_across_processes prepare prepare_data_loader prepare_model prepare_optimizer prepare_scheduler "
    "print process_index profile project_dir reduce register_for_checkpointing "
    "register_load_state_pre_hook register_save_state_pre_hook save save_iteration save_model save_state "
    "set_trigger skip_first_batches split_batches split_between_processes state sync_gradients to_device "
    "trackers trigger_sync_in_backward unscale_gradients unwrap_model use_distributed verify_device_map "
    "wait_for_everyone "
).split())
"""Methods and attributes of the accelerator."""
# fmt: on
