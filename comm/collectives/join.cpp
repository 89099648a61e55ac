#include "ddprun/comm/join.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cstdio>
#include <stdexcept>

#include <ddprun/comm/collectives.h>

#include "comm/collectives/pending_work.h"
#include "comm/group/planned_all_reduce.h"

namespace ddp {
namespace {

constexpr int kWarnAfterIterations = 1000;

float reduced(at::Tensor value, const GroupHandle& group) {
  all_reduce(value, group);
  return value.item<float>();
}

}  // namespace

// Adds the joinables to the join context and removes them at the end. (Python does not remove them.)
class JoinScope {
 public:
  JoinScope(const std::vector<Joinable*>& joinables, const JoinOptions& options) : joinables_(joinables) {
    bool first = true;
    for (Joinable* joinable : joinables_) {
      joinable->state_ = {
          .enabled = options.enable, .throws = options.throw_on_early_termination, .first = first && options.enable};
      first = false;
    }
  }
  ~JoinScope() {
    for (Joinable* joinable : joinables_) joinable->state_ = {};
  }
  JoinScope(const JoinScope&) = delete;
  JoinScope& operator=(const JoinScope&) = delete;

 private:
  const std::vector<Joinable*>& joinables_;
};

JoinNotice Joinable::notify_join_context() {
  if (!state_.first) return nullptr;
  const GroupHandle& group = join_group();
  std::vector<at::Tensor> ones{at::ones({1}, at::TensorOptions().device(join_device()))};
  const detail::GroupState& state = group.state();
  const auto plan = detail::plan_all_reduce(state, ones.front(), {.waiter = detail::AllReduceWaiter::kHandle});
  auto work = detail::start_all_reduce(plan, state, *state.group("join"), ones);
  if (state_.throws && reduced(at::zeros({1}, ones.front().options()), group) != 0) {
    throw std::runtime_error(who(group.info()) +
                             ": join: Detected at least one rank that exhausted inputs. Throwing across all ranks.");
  }
  return std::make_shared<detail::PendingWork>(detail::PendingWork{.work = std::move(work)});
}

void join(const std::vector<Joinable*>& joinables, const std::function<void()>& body, const JoinOptions& options) {
  if (joinables.empty()) throw std::invalid_argument("join: needs at least one joinable");
  if (!body) throw std::invalid_argument("join: expected a training loop to run, got an empty function");
  for (const Joinable* joinable : joinables) {
    if (joinable == nullptr) throw std::invalid_argument("join: one of the joinables is null");
  }
  const GroupHandle& group = joinables.front()->join_group();
  for (const Joinable* joinable : joinables) {
    if (&joinable->join_group().state() != &group.state()) {
      throw std::invalid_argument(who(group.info()) + ": join: all joinables must use the same process group");
    }
  }
  std::vector<std::unique_ptr<JoinHook>> hooks;
  hooks.reserve(joinables.size());
  JoinOptions effective = options;
  for (const Joinable* joinable : joinables) effective.shadow_gradients |= joinable->needs_gradients();
  for (Joinable* joinable : joinables) hooks.push_back(joinable->join_hook(effective));
  const JoinScope scope(joinables, options);
  body();
  if (!options.enable) return;
  if (!options.throw_on_early_termination) {
    for (const auto& hook : hooks) hook->joined();
  }

  const auto on_device = at::TensorOptions().device(joinables.front()->join_device());
  bool is_last_joiner = true;
  for (int iteration = 0; reduced(at::zeros({1}, on_device), group) != 0; ++iteration) {
    if (options.throw_on_early_termination) {
      all_reduce(at::ones({1}, on_device), group);
      throw std::runtime_error(who(group.info()) + ": join: Rank " + std::to_string(group.rank()) +
                               " exhausted all inputs.");
    }
    if (iteration == kWarnAfterIterations) {
      std::fprintf(stderr,
                   "ddprun: %s: join: the rank has %d fewer inputs than other ranks; it takes part in their "
                   "collectives without inputs\n",
                   who(group.info()).c_str(), kWarnAfterIterations);
    }
    for (const auto& hook : hooks) hook->main_hook();
    is_last_joiner = false;
  }
  for (const auto& hook : hooks) hook->post_hook(is_last_joiner);
}

}  // namespace ddp
