# Version 0.1's spelling of includes, <comm/process_group.h> for <ddprun/comm/process_group.h>, for one release: forwarding headers
# in a folder of their own, last on the include path, that say what to write. Our own sources cannot use them.

# Under include/ddprun with the same name, or with the one behind "=".
set(_ddprun_old_headers
    amp/amp.h amp/autocast.h amp/cast_scope.h amp/grad_scaler.h amp/loss_scaler.h amp/model.h amp/opt_level.h
    amp/scaled_loss.h checkpoint/checkpoint.h checkpoint/checkpoint_manager.h checkpoint/load_options.h
    checkpoint/safetensors.h checkpoint/safetensors_header.h checkpoint/state_ref.h=checkpoint/stateful.h checkpoint/stop_request.h
    checkpoint/storage/byte_sink.h checkpoint/storage/file_system.h checkpoint/storage/mapped_file.h
    checkpoint/storage/retention.h checkpoint/stored_tensors.h checkpoint/tensor_files.h checkpoint/training_state.h
    checkpoint/values.h comm/all_to_all.h comm/barrier.h comm/broadcast.h comm/bucket_cap.h comm/collective_options.h
    comm/collectives.h comm/device_copy.h comm/gather.h comm/gradient_bucket.h comm/gradient_hook.h comm/join.h
    comm/logging_data.h comm/main_process.h comm/manual_seed.h comm/module_holder.h comm/module_ref.h=comm/any_module_ref.h comm/new_group.h
    comm/objects.h comm/output_tensors.h comm/pending.h comm/point_to_point.h comm/process_group.h comm/reduce_value.h
    comm/reductions.h comm/report.h comm/spawn.h comm/wrap_mark.h=comm/wrapped_parameters.h data/augmented_images.h data/batch.h
    data/batch_pipeline.h data/batches.h data/byte_images.h data/byte_source.h data/cifar10.h data/cifar100.h
    data/cifar100_format.h data/cifar10_format.h data/color_jitter.h data/crop_flip.h data/device_loader.h
    data/error.h data/idx_format.h data/image.h data/image_folder.h data/image_folder_listing.h
    data/image_format.h data/image_transform.h data/loader.h data/mnist.h data/nifti_format.h data/normalization.h
    data/resize.h data/sample_random.h data/synthetic_images.h data/tensor_dataset.h data/volume_crop.h
    data/volume_listing.h data/volumes.h ddp/apex_settings.h ddp/comm_hooks.h ddp/data_parallel.h ddp/data_parallel_core.h
    ddp/ddp_core.h ddp/ddp_options.h=comm/ddp_options.h ddp/delayed_reduction.h ddp/distributed_data_parallel.h
    ddp/model_parameters.h ddp/post_local_sgd.h ddp/power_sgd.h ddp/scatter_gather.h horovod/adasum.h
    horovod/broadcast_state.h horovod/context.h horovod/distributed_optimizer.h horovod/horovod.h metrics/accuracy.h
    metrics/average.h metrics/confusion_matrix.h metrics/throughput.h monitor/event.h monitor/histogram.h monitor/images.h
    monitor/metrics_file.h monitor/progress_bar.h monitor/progress_format.h monitor/summary_writer.h optim/adagrad.h
    optim/adam.h optim/clip_grad.h optim/fused_optimizer.h optim/larc.h optim/local_optimizer.h optim/lr_scheduler.h
    optim/options.h optim/partition.h optim/reduce_lr_on_plateau.h optim/sgd.h optim/zero_redundancy_optimizer.h
    samplers/batch_sampler.h samplers/distributed_sampler.h samplers/epoch_sampler.h samplers/permutation.h
    samplers/random_sampler.h samplers/replica_option.h samplers/sampler_state.h samplers/sequential_sampler.h
    samplers/shard.h samplers/weighted_sampler.h schedules/plateau.h schedules/scale_lr.h schedules/schedule.h
    syncbn/conversion.h syncbn/join.h syncbn/sync_batch_norm.h
    comm/failure_handlers.h=base/failure_handlers.h
    comm/rank_info.h=base/rank_info.h
    ranks/job.h=base/job.h
    ranks/launcher_variables.h=base/launcher_variables.h
    ranks/rank_option.h=base/rank_option.h
    ddp/ddp.h=ddp.h
    ranks/ranked_group.h=base/ranked_group.h)

foreach(_ddprun_header IN LISTS _ddprun_old_headers)
  string(REGEX MATCH "^[^=]*" _ddprun_old "${_ddprun_header}")
  string(REGEX REPLACE ".*=" "" _ddprun_new "${_ddprun_header}")
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/old_spelling/${_ddprun_old}" CONTENT [[
#pragma once
#pragma message("ddprun: write #include <ddprun/@_ddprun_new@>; the next release does not know <@_ddprun_old@>")
#include <ddprun/@_ddprun_new@>
]] @ONLY)
endforeach()

# What an earlier configuration made and this one does not is not installed.
file(GLOB_RECURSE _ddprun_made RELATIVE "${PROJECT_BINARY_DIR}/old_spelling" "${PROJECT_BINARY_DIR}/old_spelling/*.h")
list(TRANSFORM _ddprun_old_headers REPLACE "=.*" "" OUTPUT_VARIABLE _ddprun_wanted)
list(REMOVE_ITEM _ddprun_made ${_ddprun_wanted})
list(TRANSFORM _ddprun_made PREPEND "${PROJECT_BINARY_DIR}/old_spelling/")
if(_ddprun_made)
  file(REMOVE ${_ddprun_made})
endif()

# clang is silent about what comes from a system's folder, as it takes this one for.
set(_ddprun_old_folders ${_ddprun_wanted})
list(TRANSFORM _ddprun_old_folders REPLACE "/.*" "")
list(REMOVE_DUPLICATES _ddprun_old_folders)
list(TRANSFORM _ddprun_old_folders REPLACE "(.+)" "--no-system-header-prefix=\\1/" OUTPUT_VARIABLE DDPRUN_OLD_SPELLING_CLANG)

# Lets users of the library ddprun_<name> find them: in the installed package, and in a project that adds this folder. Behind
# all other folders, the system's too: a header of that name that somebody else has comes first.
function(ddprun_old_spelling name)
  target_compile_options(
    ddprun_${name} INTERFACE "$<INSTALL_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-idirafter$<INSTALL_PREFIX>/${CMAKE_INSTALL_INCLUDEDIR}/ddprun-old-spelling>>")
  set(for_clang "$<$<COMPILE_LANG_AND_ID:CXX,Clang,AppleClang>:${DDPRUN_OLD_SPELLING_CLANG}>")
  target_compile_options(ddprun_${name} INTERFACE "$<INSTALL_INTERFACE:${for_clang}>")
  if(NOT PROJECT_IS_TOP_LEVEL)
    target_compile_options(ddprun_${name} INTERFACE "$<BUILD_INTERFACE:${for_clang}>")
    target_compile_options(ddprun_${name} INTERFACE "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-idirafter${PROJECT_BINARY_DIR}/old_spelling>>")
  endif()
endfunction()
