// Internal: what every operation does around its call of c10d: the number that is the same on
// all ranks, the error message that names operation, rank and the ranks that did something else.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>

#include "base/progress/page.h"
#include "base/timeline/own_timeline.h"
#include "comm/group/argument_checks.h"
#include "comm/group/group_state.h"

namespace ddp::detail {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// What a call is, for messages. Nothing is written down before a call fails.
struct Call {
  const char* operation;              ///< the public function's name
  std::string how{};                  ///< what else ranks must agree on: "sum", "root 2"
  std::vector<at::Tensor> tensors{};  ///< kept until the call has ended
  std::vector<at::Tensor> results{};  ///< what it returns that was not given to it
  /// All ranks of the group take part; false between two ranks, which must not disturb the others' count.
  bool is_collective = true;
  /// All ranks need equal shapes and dtypes.
  bool equal_tensors = true;
  /// The caller waits for it at once, or a backend already waits while it is started.
  bool is_waited_for = false;
};

/// What has to be equal on all ranks; devices may differ.
void append_signature(std::string& text, const char* operation, const char* how, const at::Tensor& tensor);

/// What a call that has failed throws: a std::runtime_error in our words.
[[noreturn]] void fail(const Call& call, const GroupHandle& group, uint64_t number, const std::exception& error);

/// A wait of the caller's for other ranks, in the progress page and the timeline: from where it is made until it is
/// destroyed the thread's lane has "wait for <operation>".
class ScopedWaitEvent {
 public:
  /// `since`: by page_clock().
  explicit ScopedWaitEvent(const char* operation, uint64_t since = page_clock())
      : since_(since), event_(recording() ? begin_event(EventKind::kWait, std::string("wait for ") + operation) : 0) {}
  ScopedWaitEvent(ScopedWaitEvent&& other) noexcept : since_(other.since_), event_(std::exchange(other.event_, 0)) {}
  ScopedWaitEvent& operator=(ScopedWaitEvent&&) = delete;
  ~ScopedWaitEvent() { end_event(event_); }

  /// By page_clock().
  uint64_t since() const { return since_; }

 private:
  uint64_t since_;
  uint64_t event_;
};

/// An operation under way, or several.
class PendingCall {
 public:
  virtual ~PendingCall() = default;
  /// Blocks until the operation has ended and its result is in place. Further calls return at once, or throw what the
  /// first has thrown.
  void wait();
  bool has_ended() { return is_over_ || has_arrived(); }
  /// That of the collective, or of the first of several; the same on all ranks.
  virtual uint64_t number() const { return 0; }

 private:
  virtual void finish() = 0;  // called once
  virtual bool has_arrived() = 0;

  bool is_over_ = false;
  std::exception_ptr error_;
};

/// Starts a call: `begin` hands it to c10d, `after` is run once when it has ended. `wait_limit` is for c10d calls that
/// take no timeout themselves. Throws std::runtime_error as documented for the operations.
std::shared_ptr<PendingCall> start(Call call, const GroupHandle& group,
                                   const std::function<WorkPtr(c10d::ProcessGroup&)>& begin,
                                   std::function<void()> after = {},
                                   std::optional<std::chrono::milliseconds> wait_limit = {});

/// Several calls as one.
std::shared_ptr<PendingCall> all_of(std::vector<std::shared_ptr<PendingCall>> calls);

/// Options of a c10d call. `async` false: NCCL runs it on the caller's stream. Refuses a timeout that is not above 0,
/// which c10d takes for the group's in some places and for no time at all in others.
template <typename C10dOptions>
C10dOptions call_options(const CollectiveOptions& options, bool async, const GroupHandle& group,
                         const char* operation) {
  check_wait(options, group, operation);
  C10dOptions result;
  result.asyncOp = async;
  if (options.timeout) result.timeout = *options.timeout;
  return result;
}

}  // namespace ddp::detail
