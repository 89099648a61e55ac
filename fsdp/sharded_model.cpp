#include "fsdp/sharded_model.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ddp::fsdp {
namespace {

UnitSchedule schedule_of(const std::vector<SelectedUnit>& units) {
  std::vector<int> parents;
  std::vector<bool> is_empty;
  for (const SelectedUnit& unit : units) {
    parents.push_back(unit.parent);
    is_empty.push_back(unit.parameters.empty());
  }
  return {std::move(parents), std::move(is_empty)};
}

bool thread_is_in_backward() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

}  // namespace

ShardedModel::ShardedModel(const std::vector<SelectedUnit>& units, const ShardGroups& groups,
                           const FullyShardOptions& options, bool has_python_ranks, InitialValues& values)
    : group_(groups.shard),
      rank_(who(groups.shard.info())),
      traits_(units.size()),
      schedule_(schedule_of(units)),
      has_python_ranks_(has_python_ranks),
      is_prepared_(units.size()),
      hooks_(units.size()) {
  for (const SelectedUnit& selected : units) {
    const auto number = static_cast<int>(units_.size());
    units_.push_back(std::make_unique<Unit>(number, selected.name, selected.parameters, groups, options.policy, this,
                                            cache_, values));
    traits(number).reshards_after_forward = options.reshard_after_forward.value_or(number != 0);
    hooks_[static_cast<size_t>(number)].resize(selected.parameters.size());
  }
  check_trainable_dtypes();
}

ShardedModel::~ShardedModel() {
  for (const auto& one : units_) one->reset();
}

void ShardedModel::check_trainable_dtypes() const {
  for (const auto& one : units_) {
    const ShardedParameter* first = nullptr;
    for (const ShardedParameter& parameter : one->parameters()) {
      if (!parameter.is_trainable()) continue;
      if (first == nullptr) first = &parameter;
      if (parameter.shard().scalar_type() == first->shard().scalar_type()) continue;
      throw std::invalid_argument(rank_ + ": fully_shard(): the unit " + one->name() + " has trainable parameters of " +
                                  "two dtypes, " + c10::toString(first->shard().scalar_type()) + " (" + first->name() +
                                  ") and " + c10::toString(parameter.shard().scalar_type()) + " (" + parameter.name() +
                                  "). Make them units of their own.");
    }
  }
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
  if (schedule_.is_in_backward()) {
    throw std::runtime_error(rank_ +
                             ": fully_shard(): the last backward has failed, and its gradients are incomplete. " +
                             "Call model->reset_iteration() on all ranks before the next forward.");
  }
  for (const auto& one : units_) {
    for (int i = 0; i < static_cast<int>(one->parameters().size()); ++i) {
      one->parameters()[static_cast<size_t>(i)].follow_shard();
      hook(*one, i);
    }
    // Optimizers change shards past their version counters, by p.data() or fused kernels. Python keeps what is
    // gathered.
    const bool may_stay = has_python_ranks_ || (!reshards_after_backward && !one->is_stale());
    if (!may_stay && one->state() != Unit::State::kSharded) one->free();
  }
  if (std::exchange(forgets_uses_, false)) {
    for (const auto& one : units_) one->forget_uses();
    for (UnitTraits& one : traits_) one.has_differentiable_input = false;
  }
  in_forward_ = true;
  forward_thread_ = std::this_thread::get_id();
  records_ = at::GradMode::is_enabled();
  // Python's order has forwards without gradients too, and so what it gathers in advance.
  follow(schedule_.begin_forward(records_ || has_python_ranks_), /*has_differentiable_input=*/false);
}

void ShardedModel::follow(const std::vector<UnitSchedule::Step>& steps, bool has_differentiable_input) {
  for (const UnitSchedule::Step& step : steps) {
    Unit& one = unit(step.unit);
    if (step.kind == UnitSchedule::Step::Kind::kClose) {
      if (traits(step.unit).reshards_after_forward) one.free();
      continue;
    }
    one.start_gather();
    one.finish_gather(/*in_forward=*/records_);
    if (has_differentiable_input) traits(step.unit).has_differentiable_input = true;
  }
}

void ShardedModel::end_forward() {
  follow(schedule_.end_forward(), false);
  in_forward_ = false;
  if (!at::GradMode::is_enabled()) cache_.release();
}

void ShardedModel::fail_forward() noexcept {
  in_forward_ = false;
  schedule_.abandon_forward();
  for (const auto& one : units_) one->abandon_gather();
}

void ShardedModel::refuse_use(const ParameterUse& use, const std::string& why) const {
  const ParameterStorage& storage = *use.parameters.front();
  const Unit& one = *units_[static_cast<size_t>(storage.unit())];
  throw std::logic_error(rank_ + ": fully_shard(): the operator " + use.op->schema().name() + " uses the parameter " +
                         one.parameters()[static_cast<size_t>(storage.parameter())].name() + why);
}

void ShardedModel::before_use(const ParameterUse& use) {
  if (use.written != nullptr) {
    const Unit& one = unit(use.written->unit());
    throw std::logic_error(rank_ + ": fully_shard(): the operator " + use.op->schema().name() +
                           " changes the parameter " +
                           one.parameters()[static_cast<size_t>(use.written->parameter())].name() +
                           " in place; the change would be lost when it is freed. Change model->parameters(), the "
                           "shards, outside of forwards.");
  }
  if (thread_is_in_backward()) {
    for (const ParameterStorage* storage : use.parameters) use_in_backward(storage->unit());
    return;
  }
  if (!in_forward_) {
    refuse_use(use,
               " outside of the model's forward and backward, where each rank has only a part of it. Give "
               "model->parameters() to optimizers and regularisation terms; full_parameter() gathers one.");
  }
  if (forward_thread_ != std::this_thread::get_id()) {
    refuse_use(use,
               " in another thread than the model's forward. Threads of one forward would free each other's "
               "parameters: compute in one thread, or shard their parts as models of their own.");
  }
  use_in_forward(use);
}

void ShardedModel::use_in_forward(const ParameterUse& use) {
  if (at::GradMode::is_enabled()) {
    for (const ParameterStorage* storage : use.parameters) unit(storage->unit()).mark_used(storage->parameter());
  }
  const int first = use.parameters.front()->unit();
  const bool is_one = std::ranges::all_of(use.parameters, [&](const auto* one) { return one->unit() == first; });
  if (is_one && schedule_.is_innermost(first) && unit(first).state() == Unit::State::kGathered) return;
  std::vector<int> used;
  for (const ParameterStorage* storage : use.parameters) {
    if (std::ranges::find(used, storage->unit()) == used.end()) used.push_back(storage->unit());
  }
  follow(schedule_.use_in_forward(used), use.has_differentiable_input);
  // A backward within the forward has freed them.
  for (const int number : used) {
    unit(number).start_gather();
    unit(number).finish_gather(/*in_forward=*/records_);
  }
}

// ------------------------------------------------------------------------------------------------------------ backward

void ShardedModel::begin_backward_once() {
  if (schedule_.is_in_backward()) return;
  schedule_.begin_backward();
  for (const auto& one : units_) one->begin_backward();
  forgets_uses_ = true;
  torch::autograd::Engine::get_default_engine().queue_callback([this] { end_backward(); });
  // Python's comes first, from a hook on the model's output.
  if (schedule_.awaits_backward(0)) prepare_backward_of(0);
}

void ShardedModel::use_in_backward(int number) {
  Unit& one = unit(number);
  if (is_prepared_[static_cast<size_t>(number)] && one.state() == Unit::State::kGathered) return;
  prepare_backward_of(number);
}

void ShardedModel::prepare_backward_of(int number) {
  begin_backward_once();
  // Python prepares the outer unit first, in a hook on its output.
  const int outer = schedule_.parent(number);
  if (outer > 0 && schedule_.awaits_backward(outer) && !is_prepared_[static_cast<size_t>(outer)]) {
    prepare_backward_of(outer);
  }
  const auto use = schedule_.use_in_backward(number, [this](int other) { return unit(other).is_complete(); });
  if (reshards_after_backward) {
    for (const int other : use.may_be_freed) {
      if (unit(other).state() == Unit::State::kGathered && is_prepared_[static_cast<size_t>(other)]) {
        unit(other).free();
      }
    }
  }
  Unit& one = unit(number);
  one.start_gather();
  one.check_unchanged_since_forward();
  one.finish_gather(/*in_forward=*/false);
  one.expect_gradients(reduces);
  is_prepared_[static_cast<size_t>(number)] = true;
  if (use.prefetch) unit(*use.prefetch).start_gather();
}

void ShardedModel::on_gradient(int number, int parameter) {
  if (!is_prepared_[static_cast<size_t>(number)] || !schedule_.is_in_backward()) prepare_backward_of(number);
  unit(number).note_arrival(parameter);
  for (int outer = number; outer >= 0; outer = schedule_.parent(outer)) reduce_if_possible(outer);
}

// In the order of Python: a unit after those inside it, the root and units whose inputs need no gradients at the end.
void ShardedModel::reduce_if_possible(int number) {
  if (number == 0 || schedule_.is_reduced(number) || !traits(number).has_differentiable_input) return;
  if (!unit(number).is_complete() || schedule_.waits_for_inner(number)) return;
  finish_unit(number);
}

void ShardedModel::finish_unit(int number) {
  schedule_.set_reduced(number);
  Unit& one = unit(number);
  if (!reduces) return one.keep_gradients();
  start_reduction(one);
}

void ShardedModel::start_reduction(Unit& one) {
  if (reducing_ != nullptr) std::exchange(reducing_, nullptr)->finish_reduction();
  one.start_reduction(all_reduces);
  if (one.is_reducing()) reducing_ = &one;
}

void ShardedModel::end_backward() {
  for (int number = 0; number < schedule_.size(); ++number) {
    if (!schedule_.is_reduced(number)) finish_unit(number);
  }
  if (reducing_ != nullptr) std::exchange(reducing_, nullptr)->finish_reduction();
  for (const auto& one : units_) {
    if (reshards_after_backward || one->state() == Unit::State::kGathering) one->free();
  }
  schedule_.end_backward();
  is_prepared_.assign(units_.size(), false);
  cache_.release();
}

// --------------------------------------------------------------------------------------------------------------- other

void ShardedModel::reshard() {
  for (const auto& one : units_) one->free();
}

void ShardedModel::drop_unreduced() {
  for (const auto& one : units_) one->drop_unreduced();
}

void ShardedModel::reset() {
  reducing_ = nullptr;
  in_forward_ = false;
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
