// One parameter of a fully sharded model: the module's tensor, which has memory while its unit is gathered, and the
// shard that the optimizer changes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>
#include <ddprun/detail/comm/shard_group.h>

#include "fsdp/block_cache.h"
#include "fsdp/core/shard_layout.h"
#include "fsdp/parameter_storage.h"

namespace ddp::fsdp {

/// What a unit needs to know to shard a parameter.
struct ShardSettings {
  ParameterOwner* owner = nullptr;
  BlockCache* cache = nullptr;  ///< memory of gathered parameters on the CPU
  int unit = 0;
  int parameter = 0;                      ///< its number in the unit
  GroupHandle group;                      ///< its ranks share the parameter
  std::optional<at::ScalarType> dtype{};  ///< of the gathered parameter; default: the parameter's
  c10::Device device = c10::kCPU;         ///< of the gathered parameter
  bool is_on_host = false;                ///< the shard is in host memory, whatever the device
  bool is_pinned = false;                 ///< which is page-locked
};

/// Throws std::invalid_argument when a value for `parameter`, which is called `name`, has another shape.
void check_whole_shape(const std::string& name, const at::Tensor& parameter, const at::Tensor& value);

class ShardedParameter {
 public:
  /// Takes this rank's rows of `parameter` as the shard, and frees the parameter's memory.
  ShardedParameter(std::string name, at::Tensor parameter, const ShardSettings& settings);
  ~ShardedParameter();
  ShardedParameter(ShardedParameter&& other) noexcept = default;
  ShardedParameter& operator=(ShardedParameter&& other) = delete;

  const std::string& name() const { return name_; }
  const ShardLayout& layout() const { return layout_; }
  /// A leaf tensor with this rank's rows (there may be no rows), in the parameter's dtype.
  const at::Tensor& shard() const { return shard_; }
  /// The module's tensor.
  const at::Tensor& full() const { return full_; }
  bool is_trainable() const { return full_.requires_grad(); }

  /// Gives the module's tensor memory, and returns this memory: one row of layout().chunk_numel() elements per rank.
  at::Tensor allocate();
  void free() { storage_->free(); }

  /// Records the shard's version, so that has_changed() can detect a change. `in_forward`: the call is in a forward.
  void note_version(bool in_forward);
  /// Whether the shard was changed in place since note_version().
  bool has_changed() const { return gathered_version_ != shard_._version(); }
  /// Whether it was ever gathered.
  bool was_gathered() const { return gathered_version_ >= 0; }
  /// Whether a forward has gathered it.
  bool was_in_forward() const { return forward_version_ >= 0; }
  /// Whether it was changed since the last forward that gathered it.
  bool has_changed_since_forward() const { return forward_version_ != shard_._version(); }

  /// Sets the dtype to which autograd casts the gradients of the module's tensor before it adds them up; nullopt: it
  /// does not cast them. Has no effect before LibTorch 2.12, which always casts to the tensor's dtype.
  void set_gradient_dtype(std::optional<at::ScalarType> dtype) const;

  /// Takes over a change of requires_grad of the shard or the module's tensor. Throws std::logic_error when the
  /// module's tensor was replaced or the shard has another shape.
  void sync_with_shard();

  /// A new flat tensor of the shard's elements on the device of the gathered parameter, filled up with zeros to
  /// layout().chunk_numel().
  at::Tensor padded_shard() const;
  /// The whole parameter, of the padded shards of all ranks, one after the other.
  at::Tensor whole_from(const at::Tensor& padded_shards) const;
  /// Copies this rank's rows of a whole parameter into the shard. Throws std::invalid_argument for another shape.
  void set_from(const at::Tensor& whole);

 private:
  std::string name_;
  ShardLayout layout_;
  ShardPlace place_;
  at::Tensor full_;
  at::Tensor shard_;
  c10::intrusive_ptr<ParameterStorage> storage_;
  std::vector<int64_t> shard_sizes_;
  bool was_trainable_;  // when it was last looked at
  int64_t gathered_version_ = -1;
  int64_t forward_version_ = -1;
};

}  // namespace ddp::fsdp
