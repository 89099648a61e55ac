// Training with uneven inputs: ranks that have run out of data take part in ("shadow") the collectives of the ranks
// that still have data. Reference: torch.distributed.algorithms.join. The sequence of collectives is the same, so a job
// may use both.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp {

namespace detail {
struct PendingWork;
}

/// Settings of join(); all ranks need the same.
struct JoinOptions {
  /// False: only runs the body, without any detection.
  bool enable = true;
  /// Instead of shadowing, every rank throws as soon as one has run out of inputs.
  bool throw_on_early_termination = false;
  /// True: gradients are always divided by the group's size. False: they are divided by the number of ranks that still
  /// have inputs.
  bool divide_by_initial_world_size = true;
  /// Ranks without inputs get the reduced gradients of the iterations that they shadow. join() sets it when a joinable
  /// needs them.
  bool shadow_gradients = false;
};

/// What a rank that has run out of inputs ("has joined") does for one Joinable.
class JoinHook {
 public:
  virtual ~JoinHook() = default;
  /// Called once, when this rank has run out of inputs, before the first main_hook(). Not called with
  /// throw_on_early_termination.
  virtual void joined() {}
  /// Mirrors the collectives of one iteration of the ranks that still train.
  virtual void main_hook() {}
  /// Called on every rank when all have joined. `is_last_joiner`: this rank was among the last.
  virtual void post_hook(bool is_last_joiner) { (void)is_last_joiner; }
};

/// A running all-reduce that counts the ranks that still train; null outside of join().
using JoinNotice = std::shared_ptr<detail::PendingWork>;

/// Something whose iterations contain collectives: DistributedDataParallel, SyncBatchNorm, a sharded optimizer.
class Joinable {
 public:
  virtual ~Joinable() = default;
  Joinable(const Joinable&) = delete;
  Joinable& operator=(const Joinable&) = delete;

  /// What this rank does for it after it has run out of inputs; join() calls it once per joinable, on every rank.
  virtual std::unique_ptr<JoinHook> join_hook(const JoinOptions& options) = 0;
  /// The device of the small tensors that the protocol uses.
  virtual c10::Device join_device() const = 0;
  /// The ranks whose iterations have its collectives.
  virtual const GroupHandle& join_group() const = 0;
  /// Whether its shadowed iterations use the model's gradients, as those of a sharded optimizer do.
  virtual bool needs_gradients() const { return false; }

 protected:
  Joinable() = default;

  /// True inside join() with `enable`.
  bool join_enabled() const { return state_.enabled; }

  /// To be called before the first collective of every iteration. Only the first joinable of a join() communicates:
  /// it informs the ranks that have joined that this one still trains. Throws std::runtime_error when a rank has run
  /// out of inputs and throw_on_early_termination is set.
  JoinNotice notify_join_context();

 private:
  friend class JoinScope;
  struct State {
    bool enabled = false;
    bool throws = false;
    bool first = false;
  };
  State state_;
};

/// Runs `body`, the training loop, and then shadows the other ranks' iterations until every rank has finished its own;
/// at the end each joinable gives all ranks the same state (a wrapped model: the one of the last rank that joined).
/// Every rank of the joinables' group must call it, with the same joinables in the same order. An exception from `body`
/// propagates at once, and no iteration is shadowed. Throws std::invalid_argument for an empty list or joinables of
/// different groups, and std::runtime_error with throw_on_early_termination when a rank has run out of inputs.
void join(const std::vector<Joinable*>& joinables, const std::function<void()>& body, const JoinOptions& options = {});

}  // namespace ddp
