// What the units of a fully sharded model share.
#pragma once

#include <c10/core/Device.h>

#include <optional>

#include <ddprun/comm/process_group.h>
#include <ddprun/fsdp/options.h>

#include "fsdp/block_cache.h"
#include "fsdp/gradient_offload.h"
#include "fsdp/model_trace.h"
#include "fsdp/parameter_storage.h"
#include "fsdp/side_stream.h"

namespace ddp::fsdp {

/// What shares the parameters and gradients of a unit.
struct ShardGroups {
  GroupHandle shard;                     ///< each of its ranks has a part of every parameter
  std::optional<GroupHandle> replicate;  ///< its ranks have equal parts: with a mesh of two dimensions
};

/// The units refer to it; it outlives them.
struct UnitContext {
  ShardGroups groups;
  MixedPrecisionPolicy policy;
  c10::Device device;  ///< on which the model computes
  ParameterOwner* owner;
  BlockCache& cache;
  SideStream& gather_stream;  ///< parameters are gathered on it
  ModelTrace& trace;
  GradientOffload* offload = nullptr;  ///< null: gradients stay on the device, as shards do
  bool pins_shards = false;            ///< shards are in page-locked memory of the host
};

}  // namespace ddp::fsdp
