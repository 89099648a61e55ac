#include "fsdp/sharded_model.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "base/rank_prefix.h"
#include "comm/core/graph_capture.h"

namespace ddp::fsdp {
namespace {

bool thread_is_in_backward() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

}  // namespace

ShardedModel::ShardedModel(const std::vector<SelectedUnit>& units, const ShardGroups& groups,
                           const FullyShardOptions& options, c10::Device device, bool has_python_ranks,
                           InitialValues& values)
    : group_(groups.shard),
      rank_(who(groups.shard.info())),
      device_(device),
      gather_stream_(device),
      trace_(device),
      traits_(units.size()),
      schedule_(schedule_of(units)),
      has_python_ranks_(has_python_ranks),
      is_prepared_(units.size()),
      hooks_(units.size()) {
  const bool pins = options.offload && options.offload->pin_memory;
  // On the CPU shards are in host memory anyway.
  if (options.offload && !device.is_cpu()) offload_ = std::make_unique<GradientOffload>(device, pins);
  unit_context_.emplace(UnitContext{.groups = groups,
                                    .policy = options.policy,
                                    .device = device,
                                    .owner = this,
                                    .cache = cache_,
                                    .gather_stream = gather_stream_,
                                    .trace = trace_,
                                    .offload = offload_.get(),
                                    .pins_shards = pins && offload_});
  for (const SelectedUnit& selected : units) {
    const auto number = static_cast<int>(units_.size());
    units_.push_back(std::make_unique<Unit>(number, selected.name, selected.parameters, *unit_context_, values));
    traits(number).reshards_after_forward = options.reshard_after_forward.value_or(number != 0);
    hooks_[static_cast<size_t>(number)].resize(selected.parameters.size());
    for (const std::string& module : selected.modules) unit_of_module_.emplace(module, number);
  }
}

ShardedModel::~ShardedModel() {
  if (offload_) offload_->drop();
  for (const auto& one : units_) one->reset();
}

// ------------------------------------------------------------------------------------------------------------- forward

void ShardedModel::hook(Unit& unit, int parameter) {
  auto& hook = hooks_[static_cast<size_t>(unit.number())][static_cast<size_t>(parameter)];
  const ShardedParameter& sharded = unit.parameters()[static_cast<size_t>(parameter)];
  if (!sharded.is_trainable()) {
    hook.reset();
    return;
  }
  if (hook) return hook->keep();
  hook = std::make_unique<GradientHook>(sharded.full(),
                                        [this, number = unit.number(), parameter] { on_gradient(number, parameter); });
}

void ShardedModel::begin_forward() {
  if (offload_) {
    detail::refuse_capture(rank_ + ": fully_shard(): a forward with parameters in host memory",
                           "the host waits for copies. Capture it without CpuOffload");
  }
  if (schedule_.is_in_backward()) {
    throw std::runtime_error(rank_ +
                             ": fully_shard(): the last backward has failed, and its gradients are incomplete. " +
                             "Call model->reset_iteration() on all ranks before the next forward.");
  }
  const bool may_have_stepped =
      steps_.may_have_stepped(std::ranges::any_of(units_, [](const auto& one) { return one->has_gradients(); }));
  for (const auto& one : units_) {
    for (int i = 0; i < static_cast<int>(one->parameters().size()); ++i) {
      one->parameters()[static_cast<size_t>(i)].sync_with_shard();
      hook(*one, i);
    }
    // Python does not free units that are gathered.
    const bool may_stay = has_python_ranks_ || one->is_kept_for_program() ||
                          (!reshards_after_backward && !may_have_stepped && !one->is_stale());
    if (!may_stay && one->state() != Unit::State::kSharded) one->free();
    one->forget_program();
  }
  if (std::exchange(forgets_uses_, false)) {
    for (const auto& one : units_) one->gradients().forget_uses();
    for (UnitTraits& one : traits_) one.has_differentiable_input = false;
  }
  gather_stream_.wait_for_current();  // the optimizer may have changed shards on the current stream
  in_forward_ = true;
  forward_thread_ = std::this_thread::get_id();
  records_ = at::GradMode::is_enabled();
  trace_.begin_forward(records_, reduces && is_last_backward);
  // Python's order includes forwards without gradients, and therefore determines what it prefetches.
  apply_steps(schedule_.begin_forward(records_ || has_python_ranks_), /*has_differentiable_input=*/false);
}

void ShardedModel::apply_steps(const std::vector<UnitSchedule::Step>& steps, bool has_differentiable_input) {
  for (const UnitSchedule::Step& step : steps) {
    Unit& one = unit(step.unit);
    if (step.kind == UnitSchedule::Step::Kind::kClose) {
      if (traits(step.unit).reshards_after_forward) one.free();
      continue;
    }
    if (!one.parameters().empty()) {
      if (prefetched_ != step.unit || one.is_stale()) drop_prefetched();
      prefetched_.reset();
    }
    one.start_gather();
    one.finish_gather(/*in_forward=*/records_);
    if (has_differentiable_input) traits(step.unit).has_differentiable_input = true;
    prefetch_for_forward(traits(step.unit), step.next);
  }
}

// Python ranks gather a unit only when they use it.
void ShardedModel::prefetch_for_forward(const UnitTraits& traits, std::optional<int> by_default) {
  for (const int next : traits.forward_prefetch) unit(next).start_gather();
  if (!traits.forward_prefetch.empty() || !by_default || has_python_ranks_) return;
  if (unit(*by_default).state() != Unit::State::kSharded) return;
  unit(*by_default).start_gather();
  prefetched_ = by_default;
}

// The forward uses the units in another order than the one before.
void ShardedModel::drop_prefetched() {
  if (prefetched_ && unit(*prefetched_).state() == Unit::State::kGathering) unit(*prefetched_).free();
  prefetched_.reset();
}

void ShardedModel::end_forward() {
  apply_steps(schedule_.end_forward(), false);
  drop_prefetched();
  in_forward_ = false;
  wait_for_host_memory();
  trace_.end_forward(records_);
  if (!at::GradMode::is_enabled()) cache_.release();
}

// After the forward the program may change shards while copies to the device still read them. For shards in host
// memory, no stream orders these accesses, so the host waits.
void ShardedModel::wait_for_host_memory() {
  gather_stream_.wait_for_mark();
}

void ShardedModel::fail_forward() noexcept {
  trace_.abandon();
  in_forward_ = false;
  schedule_.abandon_forward();
  prefetched_.reset();
  for (const auto& one : units_) one->abandon_gather();
}

void ShardedModel::refuse_use(const ParameterUse& use, const std::string& why) const {
  const ParameterStorage& storage = *use.parameters.front();
  const Unit& one = *units_[static_cast<size_t>(storage.unit())];
  throw std::logic_error(rank_ + ": fully_shard(): the operator " + use.op->schema().name() + " uses the parameter " +
                         one.parameters()[static_cast<size_t>(storage.parameter())].name() + why);
}

bool ShardedModel::all_are_kept_for_program(const ParameterUse& use) const {
  return std::ranges::all_of(use.parameters, [&](const ParameterStorage* storage) {
    return units_[static_cast<size_t>(storage->unit())]->is_kept_for_program();
  });
}

void ShardedModel::before_use(const ParameterUse& use) {
  if (use.written != nullptr) {
    const Unit& one = unit(use.written->unit());
    throw std::logic_error(rank_ + ": fully_shard(): the operator " + use.op->schema().name() +
                           " changes the parameter " +
                           one.parameters()[static_cast<size_t>(use.written->parameter())].name() +
                           " in place; the change would be lost when the parameter is freed. Change the shards, "
                           "model->parameters(), outside of the forward.");
  }
  if (thread_is_in_backward()) {
    for (const ParameterStorage* storage : use.parameters) use_in_backward(storage->unit());
    return;
  }
  if (!in_forward_ && !at::GradMode::is_enabled() && all_are_kept_for_program(use)) {
    for (const ParameterStorage* storage : use.parameters) unit(storage->unit()).finish_gather(/*in_forward=*/false);
    return;
  }
  if (!in_forward_) {
    refuse_use(
        use,
        " outside of the model's forward and backward, where each rank has only a part of it. Give "
        "model->parameters() to optimizers and regularisation terms; full_parameter() gathers one, and unshard() "
        "a unit for reads without gradients.");
  }
  if (forward_thread_ != std::this_thread::get_id()) {
    refuse_use(use,
               " in a thread other than that of the model's forward. Threads of one forward would free each other's "
               "parameters: compute in one thread, or shard the part of each thread as a separate model.");
  }
  use_in_forward(use);
}

void ShardedModel::use_in_forward(const ParameterUse& use) {
  if (at::GradMode::is_enabled()) {
    for (const ParameterStorage* storage : use.parameters)
      unit(storage->unit()).gradients().mark_used(storage->parameter());
  }
  const int first = use.parameters.front()->unit();
  const bool is_one = std::ranges::all_of(use.parameters, [&](const auto* one) { return one->unit() == first; });
  if (is_one && schedule_.is_innermost(first) && unit(first).state() == Unit::State::kGathered) return;
  std::vector<int> used;
  for (const ParameterStorage* storage : use.parameters) {
    if (std::ranges::find(used, storage->unit()) == used.end()) used.push_back(storage->unit());
  }
  apply_steps(schedule_.use_in_forward(used), use.has_differentiable_input);
  // A backward within the forward may have freed the units.
  for (const int number : used) {
    unit(number).start_gather();
    unit(number).finish_gather(/*in_forward=*/records_);
  }
}

// ------------------------------------------------------------------------------------------------------------ backward

void ShardedModel::begin_backward_once() {
  if (schedule_.is_in_backward()) return;
  schedule_.begin_backward();
  trace_.begin_backward();
  for (const auto& one : units_) one->gradients().begin_backward();
  forgets_uses_ = is_last_backward;
  torch::autograd::Engine::get_default_engine().queue_callback([this] { end_backward(); });
  // Python prepares the root unit first, from a hook on the model's output.
  if (schedule_.awaits_backward(0)) prepare_backward_of(0, /*needs_values=*/false);
}

void ShardedModel::use_in_backward(int number) {
  const bool is_prepared = is_prepared_[static_cast<size_t>(number)] && schedule_.is_in_backward();
  if (is_prepared && unit(number).state() == Unit::State::kGathered) return;
  // The program has declared that the backward does not need the values of this unit.
  if (is_prepared && !traits(number).unshards_in_backward) return gather_for_backward(unit(number));
  prepare_backward_of(number, /*needs_values=*/true);
}

void ShardedModel::gather_for_backward(Unit& one) {
  one.start_gather();
  one.check_unchanged_since_forward();
  one.finish_gather(/*in_forward=*/false);
}

// `needs_values`: an operator uses the unit's values. Otherwise only a gradient has arrived.
void ShardedModel::prepare_backward_of(int number, bool needs_values) {
  begin_backward_once();
  // Python prepares the outer unit first, in a hook on its output.
  const int outer = schedule_.parent(number);
  if (outer > 0 && schedule_.awaits_backward(outer) && !is_prepared_[static_cast<size_t>(outer)]) {
    prepare_backward_of(outer, /*needs_values=*/false);
  }
  const auto use =
      schedule_.use_in_backward(number, [this](int other) { return unit(other).gradients().are_complete(); });
  if (reshards_after_backward) {
    for (const int other : use.may_be_freed) {
      if (unit(other).state() == Unit::State::kGathered && is_prepared_[static_cast<size_t>(other)]) {
        unit(other).free();
      }
    }
  }
  Unit& one = unit(number);
  if (needs_values || traits(number).unshards_in_backward) gather_for_backward(one);
  // Python reduces after each use in the backward. After the first use these are the gradients of earlier backwards,
  // since those of this backward arrive after the last use.
  const bool reduces_apart = reduces && use.is_used_again && traits(number).has_differentiable_input;
  if (reduces_apart && one.gradients().has_unreduced()) start_reduction(one);
  one.gradients().expect(reduces);
  is_prepared_[static_cast<size_t>(number)] = true;
  prefetch_for_backward(traits(number), use.prefetch);
}

void ShardedModel::prefetch_for_backward(const UnitTraits& traits, std::optional<int> by_default) {
  const auto prefetch = [this](int number) {
    if (this->traits(number).unshards_in_backward) unit(number).start_gather();
  };
  if (traits.backward_prefetch.empty() && by_default) prefetch(*by_default);
  for (const int number : traits.backward_prefetch) prefetch(number);
}

void ShardedModel::on_gradient(int number, int parameter) {
  if (!is_prepared_[static_cast<size_t>(number)] || !schedule_.is_in_backward()) {
    prepare_backward_of(number, /*needs_values=*/false);
  }
  unit(number).gradients().note_arrival(parameter);
  for (int outer = number; outer >= 0; outer = schedule_.parent(outer)) reduce_if_possible(outer);
}

// As in Python, a unit is reduced after the units inside it. The root, and units whose inputs need no gradients, are
// reduced at the end.
void ShardedModel::reduce_if_possible(int number) {
  if (number == 0 || schedule_.is_reduced(number) || !traits(number).has_differentiable_input) return;
  if (!unit(number).gradients().are_complete() || schedule_.waits_for_inner(number)) return;
  finish_unit(number);
}

void ShardedModel::finish_unit(int number) {
  schedule_.set_reduced(number);
  Unit& one = unit(number);
  if (!reduces) return one.gradients().keep();
  start_reduction(one);
}

void ShardedModel::start_reduction(Unit& one) {
  steps_.note_gradients();
  if (reducing_ != nullptr) std::exchange(reducing_, nullptr)->gradients().finish_reduction();
  one.gradients().start_reduction(all_reduces);
  if (one.gradients().is_reducing()) reducing_ = &one;
}

void ShardedModel::end_backward() {
  for (int number = 0; number < schedule_.size(); ++number) {
    if (!schedule_.is_reduced(number)) finish_unit(number);
  }
  if (reducing_ != nullptr) std::exchange(reducing_, nullptr)->gradients().finish_reduction();
  if (offload_) offload_->finish();
  for (const auto& one : units_) {
    const bool is_on_its_way = one->state() == Unit::State::kGathering;
    if (is_on_its_way ? is_last_backward : reshards_after_backward) one->free();
  }
  is_last_backward ? schedule_.end_backward() : schedule_.pause_backward();
  is_prepared_.assign(units_.size(), false);
  cache_.release();
  wait_for_host_memory();
  trace_.end_backward(in_forward_);
}

int ShardedModel::unit_named(const std::string& module) const {
  const auto found = unit_of_module_.find(module);
  if (found != unit_of_module_.end()) return found->second;
  throw std::invalid_argument(rank_ + ": fully_shard(): no unit has a module '" + module +
                              "'. Units are the modules that FullyShardOptions::units selects, and '' is the root.");
}

void ShardedModel::set_divide_factor(int number, double factor) {
  if (!(std::isfinite(factor) && factor > 0)) {
    throw std::invalid_argument(rank_ + ": set_gradient_divide_factor: expected a finite number above 0, got " +
                                number_text(factor));
  }
  unit(number).gradients().settings().divide_factor = factor;
}

void ShardedModel::unshard(int number, bool is_async) {
  if (!in_forward_ && !thread_is_in_backward()) gather_stream_.wait_for_current();
  Unit& one = unit(number);
  if (one.state() != Unit::State::kSharded && one.is_stale()) one.free();
  one.keep_for_program();
  one.start_gather();
  if (!is_async) one.finish_gather(/*in_forward=*/false);
  // The program may change the shards, from which the gather copies.
  gather_stream_.make_current_wait();
  wait_for_host_memory();
}

void ShardedModel::reshard() {
  for (const auto& one : units_) one->free();
}

void ShardedModel::drop_unreduced() {
  for (const auto& one : units_) one->gradients().drop_unreduced();
}

void ShardedModel::reset() {
  trace_.abandon();
  reducing_ = nullptr;
  if (offload_) offload_->drop();
  in_forward_ = false;
  prefetched_.reset();
  schedule_.abandon_forward();
  schedule_.end_backward();
  is_prepared_.assign(units_.size(), false);
  forgets_uses_ = true;
  for (const auto& one : units_) {
    one->reset();
    for (const ShardedParameter& parameter : one->parameters()) parameter.shard().mutable_grad() = at::Tensor();
  }
}

}  // namespace ddp::fsdp
