// The gradients of a unit: when all have arrived, their reduction, and their way into the shards' gradients.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/joined.h"
#include "comm/core/call_purpose.h"
#include "fsdp/flat_buffers.h"
#include "fsdp/unit.h"

namespace ddp::fsdp {
namespace {

at::Tensor cast(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.scalar_type() == dtype ? tensor : tensor.to(dtype);
}

}  // namespace

bool Unit::is_complete() const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (used_[i] && parameters_[i].is_trainable() && !arrived_[i]) return false;
  }
  return true;
}

std::string Unit::note(const char* what, const std::vector<size_t>& parameters) const {
  std::string text = std::string(what) + " of unit " + name_;
  std::vector<std::string> missing;
  size_t next = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (next < parameters.size() && parameters[next] == i) {
      ++next;
    } else if (parameters_[i].is_trainable()) {
      missing.push_back(parameters_[i].name());
    }
  }
  return missing.empty() ? text : text + " without " + detail::joined(missing);
}

GradientDivision Unit::division(at::ScalarType dtype) const {
  return division_of({.shards = groups_.shard.size(),
                      .replicas = groups_.replicate ? groups_.replicate->size() : 1,
                      .may_overflow = dtype != at::kFloat && dtype != at::kBFloat16,
                      .only_sums = reduction_settings_.only_sums,
                      .factor = reduction_settings_.divide_factor});
}

at::ScalarType Unit::reduce_dtype() const {
  const auto trainable = std::ranges::find_if(parameters_, [](const auto& one) { return one.is_trainable(); });
  return policy_.reduce_dtype.value_or(
      (trainable == parameters_.end() ? parameters_.begin() : trainable)->shard().scalar_type());
}

// Gradients of a 16-bit parameter that are added up in 32 bits.
bool Unit::sums_in_wider_dtype(const ShardedParameter& parameter) const {
  return parameter.is_trainable() &&
         c10::elementSize(reduce_dtype()) > c10::elementSize(parameter.full().scalar_type());
}

// As PyTorch: what is reduced at once is cast when it is packed; what stays has its own dtype from the first gradient
// on.
void Unit::expect_gradients(bool reduces) {
  for (const ShardedParameter& parameter : parameters_) {
    if (!sums_in_wider_dtype(parameter)) continue;
    if (reduces || parameter.full().grad().defined()) parameter.set_gradient_dtype(std::nullopt);
  }
}

void Unit::restore_gradient_dtypes() {
  for (const ShardedParameter& parameter : parameters_) {
    if (sums_in_wider_dtype(parameter)) parameter.set_gradient_dtype(reduce_dtype());
  }
}

bool Unit::waits_for_replicas(size_t parameter) const {
  return partial_.defined() && std::ranges::find(partial_parameters_, parameter) != partial_parameters_.end();
}

// As PyTorch: what earlier backwards have left for the replicas is reduced with zeros, not left behind.
bool Unit::takes_part_with_zeros(size_t parameter) const {
  if (waits_for_replicas(parameter)) return true;
  const ShardedParameter& one = parameters_[parameter];
  return reduction_settings_.reduces_unused && one.is_trainable() && one.was_gathered();
}

std::vector<at::Tensor> Unit::take_gradients(std::vector<size_t>& parameters) {
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& full = parameters_[i].full();
    if (!full.grad().defined() && !takes_part_with_zeros(i)) continue;
    parameters.push_back(i);
    gradients.push_back(full.grad().defined()
                            ? full.grad().detach()
                            : at::zeros(full.sizes(), parameters_[i].shard().options().device(device_)));
    full.mutable_grad() = at::Tensor();
  }
  return gradients;
}

void Unit::start_reduction(bool all_reduces) {
  std::vector<size_t> which;
  std::vector<at::Tensor> gradients = take_gradients(which);
  restore_gradient_dtypes();
  if (which.empty()) return;
  const at::NoGradGuard no_grad;
  const at::ScalarType dtype = reduce_dtype();
  const GradientDivision division = this->division(dtype);
  at::Tensor flat = pack_gradients(gradients, groups_.shard.size(), dtype, cache_);
  gradients.clear();
  if (division.before != 1) flat.div_(division.before);
  if (division.multiplied != 1) flat.mul_(division.multiplied);
  reduction_ =
      Reduction{.call = nullptr, .output = {}, .parameters = which, .division = division, .all_reduces = all_reduces};
  if (groups_.shard.size() == 1) {
    reduction_->output = flat;
    if (groups_.replicate) finish_reduction();
    return;
  }
  const detail::CallPurposeScope purpose(detail::purpose_of_gradient(static_cast<uint64_t>(number_) * 2 + 1));
  auto [call, output] =
      detail::begin_reduce_scatter(flat, groups_.shard, division.scatter_averages ? ReduceOp::kAvg : ReduceOp::kSum,
                                   {.note = note("gradients", which)});
  reduction_->call = std::move(call);
  reduction_->output = std::move(output);
  // Python's order: the all-reduce before the next collective of the shards' group.
  if (groups_.replicate) finish_reduction();
}

void Unit::finish_reduction() {
  if (!reduction_) return;
  Reduction reduction = std::move(*reduction_);
  reduction_.reset();
  const at::NoGradGuard no_grad;
  if (reduction.call) reduction.call->wait();
  at::Tensor output = std::move(reduction.output);
  if (groups_.replicate) {
    output = combined_with_partial(std::move(output), reduction.parameters);
    if (!reduction.all_reduces) {
      partial_ = std::move(output);
      partial_parameters_ = std::move(reduction.parameters);
      return;
    }
    if (groups_.replicate->size() > 1) {
      detail::begin_all_reduce(output, *groups_.replicate,
                               reduction.division.all_reduce_averages ? ReduceOp::kAvg : ReduceOp::kSum,
                               {.async = false, .note = note("gradients", reduction.parameters)})
          ->wait();
    }
  }
  if (reduction.division.after != 1) output.div_(reduction.division.after);
  const at::Tensor flat = cast(output, parameters_[reduction.parameters.front()].shard().scalar_type());
  if (offload_ == nullptr) return add_to_shards(flat, reduction.parameters);
  offload_->start(flat, [this, parameters = std::move(reduction.parameters)](const at::Tensor& on_host) {
    add_to_shards(on_host, parameters);
  });
}

at::Tensor Unit::combined_with_partial(at::Tensor output, const std::vector<size_t>& parameters) {
  if (!partial_.defined()) return output;
  if (partial_parameters_ != parameters) {
    throw std::runtime_error(who(groups_.shard.info()) + ": fully_shard(): the " + note("gradients", parameters) +
                             " are to be added to " + note("gradients", partial_parameters_) +
                             ", which have not been reduced over the replicas yet. Use the same parameters in all "
                             "micro-batches between two steps.");
  }
  output.add_(partial_);
  partial_ = at::Tensor();
  return output;
}

void Unit::add_to_shards(const at::Tensor& flat, const std::vector<size_t>& parameters) {
  int64_t offset = 0;
  for (const size_t i : parameters) {
    const ShardedParameter& parameter = parameters_[i];
    const at::Tensor& shard = parameter.shard();
    // No view in autograd's eyes, which zero_grad() could not detach.
    const at::Tensor gradient =
        at::empty({0}, flat.options()).set_(flat.storage(), offset, shard.sizes(), shard.strides());
    offset += parameter.layout().chunk_numel();
    if (shard.grad().defined()) {
      shard.mutable_grad().add_(gradient);
    } else {
      shard.mutable_grad() = gradient;
    }
  }
}

void Unit::keep_gradients() {
  const at::NoGradGuard no_grad;
  for (ShardedParameter& parameter : parameters_) {
    at::Tensor& gradient = parameter.full().mutable_grad();
    if (!gradient.defined()) continue;
    gradient = cast(gradient, reduce_dtype());
  }
  restore_gradient_dtypes();
}

void Unit::drop_unreduced() {
  for (ShardedParameter& parameter : parameters_) parameter.full().mutable_grad() = at::Tensor();
  partial_ = at::Tensor();
  partial_parameters_.clear();
}

}  // namespace ddp::fsdp
