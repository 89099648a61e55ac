// Internal: collectives that c10d starts by itself or that run in the background fail with messages like our own: which
// rank, which collective, who did not take part.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <ddprun/comm/process_group.h>

#include "comm/backends/c10d_compat.h"

namespace ddp::detail {

class PairExchange;

/// Told the message of each failure, in the thread that sees it.
using FailureListener = std::function<void(const std::string& message)>;

/// Runs a function before c10d::Reducer needs what it does: at once if that may be now, else later in the same thread.
using Defer = std::function<void(std::function<void()>)>;

/// One collective: takes its number when constructed.
class Watch {
 public:
  Watch(GroupHandle group, std::string what, FailureListener on_failure = nullptr);

  /// Runs `start` and returns its Work with errors in our words. NCCL's is returned as it is: its watchdog reports.
  c10::intrusive_ptr<c10d::Work> start(const std::function<c10::intrusive_ptr<c10d::Work>()>& start) const;

  /// Sums `tensor` over two ranks; the Work is complete once what `defer` was given has been run.
  c10::intrusive_ptr<c10d::Work> exchange(const std::shared_ptr<PairExchange>& exchange, const at::Tensor& tensor,
                                          const Defer& defer) const;

 private:
  [[noreturn]] void fail(const std::exception& error) const;

  GroupHandle group_;
  std::string what_;
  FailureListener on_failure_;
  uint64_t number_;
};

/// What the watched group does before an all-reduce of a gradient bucket; may throw.
using BucketCheck = std::function<void(const at::Tensor& bucket)>;

/// `group`'s c10d group with all-reduces and broadcasts watched; for c10d::Reducer. Small buckets of two ranks are
/// exchanged directly. The group is looked up at each call, so a closed one says so. The result must not outlive what
/// the functions refer to; `check` may be empty.
c10::intrusive_ptr<c10d::ProcessGroup> make_watched_group(const GroupHandle& group, FailureListener on_failure,
                                                          Defer defer, BucketCheck check);

}  // namespace ddp::detail
