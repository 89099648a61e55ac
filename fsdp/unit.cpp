#include "fsdp/unit.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include "comm/core/call_purpose.h"
#include "fsdp/flat_buffers.h"
#include "fsdp/initial_values.h"

namespace ddp::fsdp {
namespace {

std::vector<ShardedParameter> sharded(int unit, const std::vector<UnitParameter>& parameters,
                                      const UnitContext& context, InitialValues& values) {
  std::vector<ShardedParameter> result;
  result.reserve(parameters.size());
  for (const UnitParameter& parameter : parameters) {
    values.initialize_parameter(parameters, result.size());
    const bool is_cast = context.policy.param_dtype && at::isFloatingType(parameter.tensor.scalar_type());
    result.emplace_back(parameter.name, parameter.tensor,
                        ShardSettings{.owner = context.owner,
                                      .cache = &context.cache,
                                      .unit = unit,
                                      .parameter = static_cast<int>(result.size()),
                                      .group = context.groups.shard,
                                      .dtype = is_cast ? context.policy.param_dtype : std::nullopt,
                                      .device = context.device,
                                      .is_on_host = context.offload != nullptr,
                                      .is_pinned = context.pins_shards});
  }
  return result;
}

}  // namespace

Unit::Unit(int number, std::string name, const std::vector<UnitParameter>& parameters, const UnitContext& context,
           InitialValues& values)
    : number_(number),
      name_(std::move(name)),
      context_(context),
      parameters_(sharded(number, parameters, context, values)),
      gradients_(number, name_, parameters_, context) {
  check_trainable_dtypes();
  for (const ShardedParameter& parameter : parameters_) {
    gathered_bytes_ += parameter.layout().padded_numel() * static_cast<int64_t>(parameter.full().element_size());
  }
}

// All gradients of a unit are reduced as one tensor, so they need one dtype.
void Unit::check_trainable_dtypes() const {
  const ShardedParameter* first = nullptr;
  for (const ShardedParameter& parameter : parameters_) {
    if (!parameter.is_trainable()) continue;
    if (first == nullptr) first = &parameter;
    if (parameter.shard().scalar_type() == first->shard().scalar_type()) continue;
    throw std::invalid_argument(who(context_.groups.shard.info()) + ": fully_shard(): the unit " + name_ +
                                " has trainable parameters of two dtypes, " +
                                c10::toString(first->shard().scalar_type()) + " (" + first->name() + ") and " +
                                c10::toString(parameter.shard().scalar_type()) + " (" + parameter.name() +
                                "). Put them into separate units.");
  }
}

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
  const c10::OptionalStreamGuard side = context_.gather_stream.enter();
  at::Tensor own = pack_shards(shards, chunks, dtypes, gather_dtype(), context_.device, context_.cache);
  if (context_.offload != nullptr) context_.gather_stream.mark();
  if (context_.groups.shard.size() == 1) {
    gathering_ = Gathering{.call = nullptr, .gathered = own.unsqueeze(0)};
    return;
  }
  at::Tensor gathered =
      flat_buffer(own.numel() * context_.groups.shard.size(), own.scalar_type(), own.device(), context_.cache)
          .view({context_.groups.shard.size(), own.numel()});
  const detail::CallPurposeScope purpose(detail::purpose_of_gradient(static_cast<uint64_t>(number_) * 2));
  auto call =
      detail::begin_all_gather_into(gathered, own, context_.groups.shard, {.note = "parameters of unit " + name_});
  gathering_ = Gathering{.call = std::move(call), .gathered = std::move(gathered)};
}

// Waits on the stream that owns the buffers. The next unit can then use them without waiting for other streams.
void Unit::wait_for_gather() {
  if (!gathering_ || !gathering_->call) return;
  const c10::OptionalStreamGuard side = context_.gather_stream.enter();
  gathering_->call->wait();
}

void Unit::finish_gather(bool in_forward) {
  if (state_ == State::kGathering) {
    const at::NoGradGuard no_grad;
    if (gathering_) {
      {
        const WaitRange wait("parameters", name_, context_.device);
        wait_for_gather();
        context_.gather_stream.make_current_wait();
      }
      std::vector<at::Tensor> rows;
      for (ShardedParameter& parameter : parameters_) rows.push_back(parameter.allocate());
      unpack_gathered(gathering_->gathered, rows);
      context_.gather_stream.wait_for_current();
      gathering_.reset();
      context_.trace.set_gathered(name_, gathered_bytes_, 0);
    }
    state_ = State::kGathered;
  }
  if (!in_forward) return;
  for (ShardedParameter& parameter : parameters_) parameter.note_version(/*in_forward=*/true);
}

void Unit::free() {
  if (gathering_) {
    wait_for_gather();
    context_.gather_stream.make_current_wait();  // before an optimizer changes shards
    gathering_.reset();
  }
  for (ShardedParameter& parameter : parameters_) parameter.free();
  if (state_ == State::kGathered && !parameters_.empty()) context_.trace.set_gathered(name_, 0, gathered_bytes_);
  state_ = State::kSharded;
  is_kept_for_program_ = false;
}

bool Unit::has_gradients() const {
  return std::ranges::any_of(parameters_, [](const ShardedParameter& one) { return one.shard().grad().defined(); });
}

bool Unit::is_stale() const {
  return std::ranges::any_of(parameters_, [](const ShardedParameter& one) { return one.has_changed(); });
}

void Unit::check_unchanged_since_forward() const {
  for (const ShardedParameter& parameter : parameters_) {
    if (!parameter.was_in_forward()) {
      throw std::logic_error(who(context_.groups.shard.info()) + ": fully_shard(): the parameter " + parameter.name() +
                             " has a gradient, but no operator of the forward used it: the forward used a view or a "
                             "copy that was made before fully_shard() and has old values. Make it in the forward.");
    }
    if (!parameter.has_changed_since_forward()) continue;
    throw std::runtime_error(who(context_.groups.shard.info()) + ": fully_shard(): the parameter " + parameter.name() +
                             " was changed between the forward and its backward, which needs it again. Step the "
                             "optimizer after the backward.");
  }
}

void Unit::abandon_gather() noexcept {
  try {
    free();
  } catch (const std::exception&) {
    // The error was reported by the call that failed.
  }
  gathering_.reset();
  for (ShardedParameter& parameter : parameters_) parameter.free();
  state_ = State::kSharded;
}

void Unit::reset() noexcept {
  abandon_gather();
  gradients_.reset();
}

}  // namespace ddp::fsdp
