#include "fsdp/sharded_parameter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>

#include <sstream>
#include <stdexcept>
#include <utility>

#include <ddprun/detail/comm/shard_group.h>

#include "base/rank_prefix.h"

namespace ddp::fsdp {
namespace {

ShardLayout layout_of(const at::Tensor& parameter, int ranks) {
  const int64_t rows = parameter.size(0);
  return {rows, rows == 0 ? 0 : parameter.numel() / rows, ranks};
}

c10::intrusive_ptr<ParameterStorage> make_storage(const at::Tensor& parameter, const ShardLayout& layout,
                                                  const ShardSettings& settings) {
  const size_t element_size = c10::elementSize(settings.dtype.value_or(parameter.scalar_type()));
  c10::Allocator* allocator = settings.cache;
  if (!settings.device.is_cpu()) allocator = c10::GetAllocator(settings.device.type());
  return c10::make_intrusive<ParameterStorage>(settings.owner, settings.unit, settings.parameter,
                                               static_cast<size_t>(layout.padded_numel()) * element_size,
                                               settings.device, allocator);
}

at::Tensor shard_of(const at::Tensor& parameter, const ShardLayout& layout, const ShardPlace& place, bool is_on_host) {
  const int rank = place.group.rank();
  const at::NoGradGuard no_grad;
  at::Tensor rows = parameter.detach().narrow(0, place.first_row, layout.rows_of(rank));
  if (is_on_host) rows = rows.cpu();
  // A copy, so that the parameter's memory is not kept.
  at::Tensor shard = as_shard(rows, place);
  return shard.set_requires_grad(parameter.requires_grad());
}

}  // namespace

ShardedParameter::ShardedParameter(std::string name, at::Tensor parameter, const ShardSettings& settings)
    : name_(std::move(name)),
      layout_(layout_of(parameter, settings.group.size())),
      place_{.group = settings.group,
             .whole_sizes = parameter.sizes().vec(),
             .first_row = layout_.first_row(settings.group.rank()),
             .is_pinned = settings.is_pinned},
      full_(std::move(parameter)),
      shard_(shard_of(full_, layout_, place_, settings.is_on_host)),
      storage_(make_storage(full_, layout_, settings)),
      shard_sizes_(shard_.sizes().vec()),
      was_trainable_(full_.requires_grad()) {
  move_into_storage(full_, storage_, settings.dtype.value_or(full_.scalar_type()));
  full_.mutable_grad() = at::Tensor();
}

ShardedParameter::~ShardedParameter() {
  if (storage_) storage_->forget_owner();
}

at::Tensor ShardedParameter::allocate() {
  storage_->allocate();
  // A tensor of its own on this memory: autograd's count of changes of the module's tensor stays as it is.
  const int64_t chunk = layout_.chunk_numel();
  at::Tensor rows = at::empty({0}, full_.options().requires_grad(false));
  return rows.set_(c10::Storage(storage_), 0, {chunk == 0 ? 1 : layout_.padded_numel() / chunk, chunk}, {chunk, 1});
}

void ShardedParameter::note_version(bool in_forward) {
  gathered_version_ = static_cast<int64_t>(shard_._version());
  if (in_forward) forward_version_ = gathered_version_;
}

void ShardedParameter::set_gradient_dtype(std::optional<at::ScalarType> dtype) const {
  const auto set = [&](const auto& tensor) {
    if constexpr (requires { tensor.set_grad_dtype(dtype); }) tensor.set_grad_dtype(dtype);
  };
  set(full_);
}

void ShardedParameter::sync_with_shard() {
  const bool is_same = full_.storage().unsafeGetStorageImpl() == storage_.get() && shard_.sizes() == shard_sizes_;
  if (!is_same) {
    throw std::logic_error(rank_prefix() + "fully_shard(): the parameter " + name_ +
                           " was replaced or resized after the model was sharded. Change models before " +
                           "fully_shard(); load values into model->parameters().");
  }
  keep_shard_metadata(shard_, place_);
  if (full_.requires_grad() != was_trainable_) {
    shard_.set_requires_grad(full_.requires_grad());
  } else if (shard_.requires_grad() != was_trainable_) {
    full_.set_requires_grad(shard_.requires_grad());
  }
  was_trainable_ = full_.requires_grad();
}

at::Tensor ShardedParameter::padded_shard() const {
  const at::NoGradGuard no_grad;
  at::Tensor padded = at::zeros({layout_.chunk_numel()}, shard_.options().device(full_.device()).requires_grad(false));
  padded.narrow(0, 0, shard_.numel()).copy_(shard_.detach().reshape({-1}));
  return padded;
}

at::Tensor ShardedParameter::whole_from(const at::Tensor& padded_shards) const {
  return padded_shards.reshape({-1}).narrow(0, 0, full_.numel()).view(full_.sizes());
}

void check_whole_shape(const std::string& name, const at::Tensor& parameter, const at::Tensor& value) {
  if (value.sizes() == parameter.sizes()) return;
  std::ostringstream text;
  text << rank_prefix() << "fully_shard(): the parameter " << name << " has the shape " << parameter.sizes()
       << ", but the given value has " << value.sizes();
  throw std::invalid_argument(text.str());
}

void ShardedParameter::set_from(const at::Tensor& whole) {
  check_whole_shape(name_, full_, whole);
  const at::NoGradGuard no_grad;
  shard_.copy_(whole.narrow(0, layout_.first_row(place_.group.rank()), layout_.rows_of(place_.group.rank())));
}

}  // namespace ddp::fsdp
