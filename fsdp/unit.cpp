#include "fsdp/unit.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "base/joined.h"
#include "comm/core/call_purpose.h"
#include "fsdp/flat_buffers.h"
#include "fsdp/initial_values.h"

namespace ddp::fsdp {
namespace {

// Sums in these dtypes overflow no sooner than the gradients themselves.
bool can_average(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16;
}

at::Tensor cast(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.scalar_type() == dtype ? tensor : tensor.to(dtype);
}

}  // namespace

Unit::Unit(int number, std::string name, const std::vector<UnitParameter>& parameters, const ShardGroups& groups,
           const MixedPrecisionPolicy& policy, ParameterOwner* owner, BlockCache& cache, InitialValues& values)
    : number_(number), name_(std::move(name)), groups_(groups), policy_(policy), cache_(cache) {
  parameters_.reserve(parameters.size());
  for (const UnitParameter& parameter : parameters) {
    values.bring_parameter(parameters, parameters_.size());
    const bool is_cast = policy.param_dtype && at::isFloatingType(parameter.tensor.scalar_type());
    parameters_.emplace_back(parameter.name, parameter.tensor,
                             ShardSettings{.owner = owner,
                                           .cache = &cache,
                                           .unit = number,
                                           .parameter = static_cast<int>(parameters_.size()),
                                           .group = groups.shard,
                                           .dtype = is_cast ? policy.param_dtype : std::nullopt});
  }
  for (const ShardedParameter& parameter : parameters_) {
    if (parameter.is_trainable()) parameter.set_gradient_dtype(reduce_dtype());
  }
  forget_uses();
  begin_backward();
}

// ---------------------------------------------------------------------------------------------------------- parameters

at::ScalarType Unit::gather_dtype() const {
  const at::ScalarType first = parameters_.front().full().scalar_type();
  const bool is_one =
      std::ranges::all_of(parameters_, [&](const ShardedParameter& one) { return one.full().scalar_type() == first; });
  return is_one ? first : at::kByte;
}

void Unit::start_gather() {
  if (state_ != State::kSharded) return;
  state_ = State::kGathering;
  for (ShardedParameter& parameter : parameters_) parameter.note_version(/*in_forward=*/false);
  if (parameters_.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> shards;
  std::vector<int64_t> chunks;
  std::vector<at::ScalarType> dtypes;
  for (const ShardedParameter& parameter : parameters_) {
    shards.push_back(parameter.shard());
    chunks.push_back(parameter.layout().chunk_numel());
    dtypes.push_back(parameter.full().scalar_type());
  }
  at::Tensor own = pack_shards(shards, chunks, dtypes, gather_dtype(), cache_);
  if (groups_.shard.size() == 1) {
    gathering_ = Gathering{.call = nullptr, .gathered = own.unsqueeze(0)};
    return;
  }
  std::vector<size_t> all(parameters_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  at::Tensor gathered = flat_buffer(own.numel() * groups_.shard.size(), own.scalar_type(), own.device(), cache_)
                            .view({groups_.shard.size(), own.numel()});
  const detail::CallPurposeScope purpose(detail::purpose_of_gradient(static_cast<uint64_t>(number_) * 2));
  auto call = detail::begin_all_gather_into(gathered, own, groups_.shard, {.note = note("parameters", all)});
  gathering_ = Gathering{.call = std::move(call), .gathered = std::move(gathered)};
}

void Unit::finish_gather(bool in_forward) {
  if (state_ == State::kGathering) {
    const at::NoGradGuard no_grad;
    if (gathering_) {
      if (gathering_->call) gathering_->call->wait();
      std::vector<at::Tensor> rows;
      for (ShardedParameter& parameter : parameters_) rows.push_back(parameter.allocate());
      unpack_gathered(gathering_->gathered, rows);
      gathering_.reset();
    }
    state_ = State::kGathered;
  }
  if (!in_forward) return;
  for (ShardedParameter& parameter : parameters_) parameter.note_version(/*in_forward=*/true);
}

void Unit::free() {
  if (gathering_ && gathering_->call) gathering_->call->wait();
  gathering_.reset();
  for (ShardedParameter& parameter : parameters_) parameter.free();
  state_ = State::kSharded;
}

bool Unit::is_stale() const {
  return std::ranges::any_of(parameters_, [](const ShardedParameter& one) { return one.has_changed(); });
}

void Unit::check_unchanged_since_forward() const {
  for (const ShardedParameter& parameter : parameters_) {
    if (!parameter.was_in_forward()) {
      throw std::logic_error(who(groups_.shard.info()) + ": fully_shard(): the parameter " + parameter.name() +
                             " has a gradient, but no operator of the forward used it: the forward used a view or a "
                             "copy that was taken before fully_shard(), which has old values. Take it in the forward.");
    }
    if (!parameter.has_changed_since_forward()) continue;
    throw std::runtime_error(who(groups_.shard.info()) + ": fully_shard(): the parameter " + parameter.name() +
                             " was changed between the forward and its backward, which needs it again. Step the "
                             "optimizer after the backward.");
  }
}

// ----------------------------------------------------------------------------------------------------------- gradients

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

// PyTorch's: the power of two by which the sum stays in range that is nearest to the root of the number of ranks.
double Unit::pre_divisor(at::ScalarType dtype) const {
  if (can_average(dtype)) return 1;
  const double factor = groups_.shard.size() * (groups_.replicate ? groups_.replicate->size() : 1);
  double divisor = 1;
  while (std::fmod(factor, divisor) == 0 && factor / divisor > divisor) divisor *= 2;
  return divisor;
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

void Unit::start_reduction(bool all_reduces) {
  std::vector<size_t> which;
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].full().grad();
    // As PyTorch: what earlier backwards have left for the replicas is reduced with zeros, not left behind.
    if (!gradient.defined() && !waits_for_replicas(i)) continue;
    which.push_back(i);
    gradients.push_back(gradient.defined()
                            ? gradient.detach()
                            : at::zeros(parameters_[i].full().sizes(), parameters_[i].shard().options()));
    parameters_[i].full().mutable_grad() = at::Tensor();
  }
  restore_gradient_dtypes();
  if (which.empty()) return;
  const at::NoGradGuard no_grad;
  const at::ScalarType dtype = reduce_dtype();
  at::Tensor flat = pack_gradients(gradients, groups_.shard.size(), dtype, cache_);
  gradients.clear();
  if (const double divisor = pre_divisor(dtype); divisor != 1) flat.div_(divisor);
  reduction_ = Reduction{.call = nullptr, .output = {}, .parameters = which, .all_reduces = all_reduces};
  if (groups_.shard.size() == 1) {
    reduction_->output = flat;
    if (groups_.replicate) finish_reduction();
    return;
  }
  const detail::CallPurposeScope purpose(detail::purpose_of_gradient(static_cast<uint64_t>(number_) * 2 + 1));
  auto [call, output] = detail::begin_reduce_scatter(
      flat, groups_.shard, can_average(dtype) ? ReduceOp::kAvg : ReduceOp::kSum, {.note = note("gradients", which)});
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
    const bool averages = can_average(output.scalar_type());
    if (groups_.replicate->size() > 1) {
      detail::begin_all_reduce(output, *groups_.replicate, averages ? ReduceOp::kAvg : ReduceOp::kSum,
                               {.async = false, .note = note("gradients", reduction.parameters)})
          ->wait();
    }
  }
  if (!can_average(output.scalar_type())) {
    const double factor = groups_.shard.size() * (groups_.replicate ? groups_.replicate->size() : 1);
    if (const double rest = factor / pre_divisor(output.scalar_type()); rest != 1) output.div_(rest);
  }
  add_to_shards(output, reduction.parameters);
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

void Unit::add_to_shards(const at::Tensor& reduced, const std::vector<size_t>& parameters) {
  const at::Tensor flat = cast(reduced, parameters_[parameters.front()].shard().scalar_type());
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

namespace {

void wait_quietly(const detail::Started& call) noexcept {
  try {
    if (call) call->wait();
  } catch (const std::exception&) {
    // What failed has been reported where it failed.
  }
}

}  // namespace

void Unit::abandon_gather() noexcept {
  if (gathering_) wait_quietly(gathering_->call);
  gathering_.reset();
  for (ShardedParameter& parameter : parameters_) parameter.free();
  state_ = State::kSharded;
}

void Unit::reset() noexcept {
  abandon_gather();
  if (reduction_) wait_quietly(reduction_->call);
  reduction_.reset();
  drop_unreduced();
  forget_uses();
  begin_backward();
}

}  // namespace ddp::fsdp
