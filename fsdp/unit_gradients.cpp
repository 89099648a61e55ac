#include "fsdp/unit_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include "base/joined.h"
#include "comm/core/call_purpose.h"
#include "fsdp/flat_buffers.h"

namespace ddp::fsdp {
namespace {

at::Tensor cast(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.scalar_type() == dtype ? tensor : tensor.to(dtype);
}

template <typename Wait>
void run_ignoring_errors(const Wait& wait) noexcept {
  try {
    wait();
  } catch (const std::exception&) {
    // The error was reported by the call that failed.
  }
}

}  // namespace

UnitGradients::UnitGradients(int number, const std::string& name, std::vector<ShardedParameter>& parameters,
                             const UnitContext& context)
    : number_(number), name_(name), parameters_(parameters), context_(context) {
  for (const ShardedParameter& parameter : parameters_) {
    if (parameter.is_trainable()) parameter.set_gradient_dtype(reduce_dtype());
  }
  forget_uses();
  begin_backward();
}

bool UnitGradients::are_complete() const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (used_[i] && parameters_[i].is_trainable() && !arrived_[i]) return false;
  }
  return true;
}

std::string UnitGradients::note(const std::vector<size_t>& parameters) const {
  const std::string text = "gradients of unit " + name_;
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

GradientDivision UnitGradients::division(at::ScalarType dtype) const {
  return division_of({.shards = context_.groups.shard.size(),
                      .replicas = context_.groups.replicate ? context_.groups.replicate->size() : 1,
                      .may_overflow = dtype != at::kFloat && dtype != at::kBFloat16,
                      .only_sums = settings_.only_sums,
                      .factor = settings_.divide_factor});
}

at::ScalarType UnitGradients::reduce_dtype() const {
  const auto trainable = std::ranges::find_if(parameters_, [](const auto& one) { return one.is_trainable(); });
  return context_.policy.reduce_dtype.value_or(
      (trainable == parameters_.end() ? parameters_.begin() : trainable)->shard().scalar_type());
}

// Whether gradients of this 16-bit parameter are added up in a wider dtype.
bool UnitGradients::sums_in_wider_dtype(const ShardedParameter& parameter) const {
  return parameter.is_trainable() &&
         c10::elementSize(reduce_dtype()) > c10::elementSize(parameter.full().scalar_type());
}

// As in PyTorch: gradients that are reduced in this backward are cast when they are packed. Gradients that are kept
// have the reduction's dtype from the first one on.
void UnitGradients::expect(bool reduces) {
  for (const ShardedParameter& parameter : parameters_) {
    if (!sums_in_wider_dtype(parameter)) continue;
    if (reduces || parameter.full().grad().defined()) parameter.set_gradient_dtype(std::nullopt);
  }
}

void UnitGradients::restore_dtypes() {
  for (const ShardedParameter& parameter : parameters_) {
    if (sums_in_wider_dtype(parameter)) parameter.set_gradient_dtype(reduce_dtype());
  }
}

bool UnitGradients::waits_for_replicas(size_t parameter) const {
  return partial_.defined() && std::ranges::find(partial_parameters_, parameter) != partial_parameters_.end();
}

// As in PyTorch: gradients of earlier backwards that still wait for the replicas are reduced too; this backward adds
// zeros to them.
bool UnitGradients::takes_part_with_zeros(size_t parameter) const {
  if (waits_for_replicas(parameter)) return true;
  const ShardedParameter& one = parameters_[parameter];
  return settings_.reduces_unused && one.is_trainable() && one.was_gathered();
}

std::vector<at::Tensor> UnitGradients::take(std::vector<size_t>& parameters) {
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& full = parameters_[i].full();
    if (!full.grad().defined() && !takes_part_with_zeros(i)) continue;
    parameters.push_back(i);
    gradients.push_back(full.grad().defined()
                            ? full.grad().detach()
                            : at::zeros(full.sizes(), parameters_[i].shard().options().device(context_.device)));
    full.mutable_grad() = at::Tensor();
  }
  return gradients;
}

void UnitGradients::start_reduction(bool all_reduces) {
  std::vector<size_t> which;
  std::vector<at::Tensor> gradients = take(which);
  restore_dtypes();
  if (which.empty()) return;
  const at::NoGradGuard no_grad;
  const at::ScalarType dtype = reduce_dtype();
  const GradientDivision division = this->division(dtype);
  at::Tensor flat = pack_gradients(gradients, context_.groups.shard.size(), dtype, context_.cache);
  gradients.clear();
  if (division.before != 1) flat.div_(division.before);
  if (division.multiplied != 1) flat.mul_(division.multiplied);
  reduction_ =
      Reduction{.call = nullptr, .output = {}, .parameters = which, .division = division, .all_reduces = all_reduces};
  if (context_.groups.shard.size() == 1) {
    reduction_->output = flat;
    if (context_.groups.replicate) finish_reduction();
    return;
  }
  const detail::CallPurposeScope purpose(detail::purpose_of_gradient(static_cast<uint64_t>(number_) * 2 + 1));
  auto [call, output] = detail::begin_reduce_scatter(
      flat, context_.groups.shard, division.scatter_averages ? ReduceOp::kAvg : ReduceOp::kSum, {.note = note(which)});
  reduction_->call = std::move(call);
  reduction_->output = std::move(output);
  // Python's order: the all-reduce comes before the next collective of the group of shards.
  if (context_.groups.replicate) finish_reduction();
}

void UnitGradients::finish_reduction() {
  if (!reduction_) return;
  Reduction reduction = std::move(*reduction_);
  reduction_.reset();
  const at::NoGradGuard no_grad;
  if (reduction.call) {
    const WaitRange wait("gradients", name_, context_.device);
    reduction.call->wait();
  }
  at::Tensor output = std::move(reduction.output);
  if (context_.groups.replicate) {
    output = combined_with_partial(std::move(output), reduction.parameters);
    if (!reduction.all_reduces) {
      partial_ = std::move(output);
      partial_parameters_ = std::move(reduction.parameters);
      return;
    }
    if (context_.groups.replicate->size() > 1) {
      detail::begin_all_reduce(output, *context_.groups.replicate,
                               reduction.division.all_reduce_averages ? ReduceOp::kAvg : ReduceOp::kSum,
                               {.async = false, .note = note(reduction.parameters)})
          ->wait();
    }
  }
  if (reduction.division.after != 1) output.div_(reduction.division.after);
  const at::Tensor flat = cast(output, parameters_[reduction.parameters.front()].shard().scalar_type());
  if (context_.offload == nullptr) return add_to_shards(flat, reduction.parameters);
  context_.offload->start(flat, [this, parameters = std::move(reduction.parameters)](const at::Tensor& on_host) {
    add_to_shards(on_host, parameters);
  });
}

// Adds the partial sums to `output`. take() has made sure that their parameters are among `parameters`.
at::Tensor UnitGradients::combined_with_partial(at::Tensor output, const std::vector<size_t>& parameters) {
  if (!partial_.defined()) return output;
  int64_t to = 0;
  int64_t from = 0;
  auto waiting = partial_parameters_.begin();
  for (const size_t i : parameters) {
    const int64_t numel = parameters_[i].layout().chunk_numel();
    if (waiting != partial_parameters_.end() && *waiting == i) {
      output.narrow(0, to, numel).add_(partial_.narrow(0, from, numel));
      from += numel;
      ++waiting;
    }
    to += numel;
  }
  partial_ = at::Tensor();
  return output;
}

void UnitGradients::add_to_shards(const at::Tensor& flat, const std::vector<size_t>& parameters) {
  int64_t offset = 0;
  for (const size_t i : parameters) {
    const ShardedParameter& parameter = parameters_[i];
    const at::Tensor& shard = parameter.shard();
    // Not a view for autograd: zero_grad() could not detach a view.
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

bool UnitGradients::has_unreduced() const {
  const auto has_gradient = [](const ShardedParameter& one) { return one.full().grad().defined(); };
  return partial_.defined() || std::ranges::any_of(parameters_, has_gradient);
}

void UnitGradients::keep() {
  const at::NoGradGuard no_grad;
  for (ShardedParameter& parameter : parameters_) {
    at::Tensor& gradient = parameter.full().mutable_grad();
    if (!gradient.defined()) continue;
    gradient = cast(gradient, reduce_dtype());
  }
  restore_dtypes();
}

void UnitGradients::drop_unreduced() {
  for (ShardedParameter& parameter : parameters_) parameter.full().mutable_grad() = at::Tensor();
  partial_ = at::Tensor();
  partial_parameters_.clear();
}

void UnitGradients::reset() noexcept {
  if (reduction_ && reduction_->call) run_ignoring_errors([this] { reduction_->call->wait(); });
  reduction_.reset();
  drop_unreduced();
  forget_uses();
  begin_backward();
}

}  // namespace ddp::fsdp
