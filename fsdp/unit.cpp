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

namespace ddp::fsdp {
Unit::Unit(int number, std::string name, const std::vector<UnitParameter>& parameters,
           const UnitSurroundings& surroundings)
    : number_(number),
      name_(std::move(name)),
      groups_(surroundings.groups),
      policy_(surroundings.policy),
      device_(surroundings.device),
      cache_(surroundings.cache),
      gather_stream_(surroundings.gather_stream),
      offload_(surroundings.offload) {
  parameters_.reserve(parameters.size());
  for (const UnitParameter& parameter : parameters) {
    const bool is_cast = policy_.param_dtype && at::isFloatingType(parameter.tensor.scalar_type());
    parameters_.emplace_back(parameter.name, parameter.tensor,
                             ShardSettings{.owner = surroundings.owner,
                                           .cache = &cache_,
                                           .unit = number,
                                           .parameter = static_cast<int>(parameters_.size()),
                                           .group = groups_.shard,
                                           .dtype = is_cast ? policy_.param_dtype : std::nullopt,
                                           .device = device_,
                                           .is_on_host = offload_ != nullptr,
                                           .is_pinned = surroundings.pins_shards});
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
  const c10::OptionalStreamGuard side = gather_stream_.enter();
  at::Tensor own = pack_shards(shards, chunks, dtypes, gather_dtype(), device_, cache_);
  if (offload_ != nullptr) gather_stream_.mark();
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

// On the stream that has the buffers, so that they are free for the next unit without a look at other streams.
void Unit::wait_for_gather() {
  if (!gathering_ || !gathering_->call) return;
  const c10::OptionalStreamGuard side = gather_stream_.enter();
  gathering_->call->wait();
}

void Unit::finish_gather(bool in_forward) {
  if (state_ == State::kGathering) {
    const at::NoGradGuard no_grad;
    if (gathering_) {
      wait_for_gather();
      gather_stream_.lead_current();
      std::vector<at::Tensor> rows;
      for (ShardedParameter& parameter : parameters_) rows.push_back(parameter.allocate());
      unpack_gathered(gathering_->gathered, rows);
      gather_stream_.follow_current();
      gathering_.reset();
    }
    state_ = State::kGathered;
  }
  if (!in_forward) return;
  for (ShardedParameter& parameter : parameters_) parameter.note_version(/*in_forward=*/true);
}

void Unit::free() {
  if (gathering_) {
    wait_for_gather();
    gather_stream_.lead_current();  // before an optimizer changes shards
    gathering_.reset();
  }
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

namespace {

template <typename Wait>
void run_quietly(const Wait& wait) noexcept {
  try {
    wait();
  } catch (const std::exception&) {
    // What failed has been reported where it failed.
  }
}

}  // namespace

void Unit::abandon_gather() noexcept {
  run_quietly([this] { free(); });
  gathering_.reset();
  for (ShardedParameter& parameter : parameters_) parameter.free();
  state_ = State::kSharded;
}

void Unit::reset() noexcept {
  abandon_gather();
  if (reduction_ && reduction_->call) run_quietly([this] { reduction_->call->wait(); });
  reduction_.reset();
  drop_unreduced();
  forget_uses();
  begin_backward();
}

}  // namespace ddp::fsdp
