#include "comm/collectives/collective_call.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>
#include <utility>

#include <ddprun/comm/pending.h>

#include "comm/backends/purpose_backend.h"
#include "comm/backends/shm_work.h"
#include "comm/collectives/begin.h"
#include "comm/core/call_log.h"
#include "comm/core/call_purpose.h"
#include "comm/core/graph_capture.h"
#include "comm/group/failure_cause.h"
#include "comm/group/group_state.h"
#include "comm/group/store.h"
#include "comm/group/stream_use.h"
#include "comm/group/verify_across_ranks.h"

namespace ddp::detail {
namespace {

std::string subject(const Call& call, const GroupHandle& group) {
  if (call.tensors.empty()) return "group of " + std::to_string(group.size());
  if (call.tensors.size() == 1) return describe(call.tensors[0]);
  return "list of " + std::to_string(call.tensors.size()) + " tensors";
}

// The call's number, such as "number 17". For a collective of a backward also the number of its forward's call, such as
// "number 17, gradient of number 3".
std::string place_in_group(const Call& call, uint64_t number) {
  const std::string text = "number " + std::to_string(number);
  const size_t note = call.how.find("gradient of number ");
  return note == std::string::npos ? text : text + ", " + call.how.substr(note);
}

// The text that must be equal on all ranks; devices may differ. For a message, for example: "send (to rank 1, tag 0) of
// Float [2, 3]".
std::string signature(const Call& call) {
  if (call.equal_tensors && call.tensors.size() == 1) {
    std::string text;
    text.reserve(128);  // one allocation: it is made for each call
    append_signature(text, call.operation, call.how.c_str(), call.tensors[0]);
    return text;
  }
  std::string text = call.operation;
  if (!call.how.empty()) text += " (" + call.how + ")";
  if (call.equal_tensors && !call.tensors.empty()) text += " of " + std::to_string(call.tensors.size()) + " tensors";
  return text;
}

// Refuses to capture a call with CUDA tensors on a backend whose wait() blocks the host.
void refuse_capture_over_host(const Call& call, const GroupHandle& group) {
  if (call.tensors.empty() || !call.tensors[0].is_cuda()) return;
  const BackendTraits* backend = backend_for(group, call.tensors[0].device());
  if (backend == nullptr || !backend->wait_blocks) return;
  refuse_capture(who(group.info()) + ": " + call.operation + " over " + backend->title,
                 "it goes through the host's memory. Use backend 'nccl'");
}

// The backend that compares purposes. Null if the call has no purpose, if its backend compares none, or if some ranks
// run Python, since they cannot set a purpose.
PurposeBackend* purpose_backend(const Call& call, const GroupHandle& group, c10d::ProcessGroup& c10d_group) {
  if (thread_call_purpose() == 0 || call.tensors.empty()) return nullptr;
  const auto backend = c10d_group.getBackend(call.tensors[0].device().type());
  auto* const compares = dynamic_cast<PurposeBackend*>(backend.get());
  return compares != nullptr && ranks_running_python(group).empty() ? compares : nullptr;
}

// `waits_since`: as CallLog::end()'s.
void end_in(CallLog& log, bool is_collective, uint64_t number, std::optional<uint64_t> waits_since = std::nullopt) {
  if (is_collective) return log.end(number, waits_since);
  log.end_message(number, waits_since.value_or(page_clock()));
}

class OneCall final : public PendingCall {
 public:
  // For a collective its number, for a message the result of begin_message().
  OneCall(Call call, GroupHandle group, uint64_t number, WorkPtr work, std::function<void()> after,
          std::optional<std::chrono::milliseconds> wait_limit, std::optional<ScopedWaitEvent> wait)
      : call_(std::move(call)),
        group_(std::move(group)),
        number_(number),
        origin_(call_.tensors),
        work_(std::move(work)),
        after_(std::move(after)),
        wait_limit_(wait_limit),
        wait_(std::move(wait)) {}
  ~OneCall() override {
    if (!was_waited_for_ && !is_followed_) end_in(group_.state().log(), call_.is_collective, number_);
  }
  uint64_t number() const override { return number_; }
  // Until the work has ended, reports show that the job waits for it, even if its handle was destroyed.
  void track_work() {
    if (!work_ || call_.is_waited_for) return;
    is_followed_ = add_end_callback(*work_, [log = group_.state().shared_log(), number = number_,
                                             is_collective = call_.is_collective](bool has_failed) {
      if (!has_failed) end_in(*log, is_collective, number);
    });
  }

 private:
  void finish() override {
    was_waited_for_ = true;
    const at::NoGradGuard no_grad;
    const ScopedWaitEvent wait = wait_ ? *std::exchange(wait_, std::nullopt) : ScopedWaitEvent(call_.operation);
    try {
      if (work_) wait_limit_ ? work_->wait(*wait_limit_) : work_->wait();
    } catch (const std::exception& error) {
      fail(call_, group_, number_, error);
    }
    end_in(group_.state().log(), call_.is_collective, number_, wait.since());
    if (after_) after_();
    // The tensors may be used, and released, on another stream than the one on which they were allocated.
    record_current_stream(call_.tensors);
    record_current_stream(call_.results);
    origin_.wait_in_current_stream();  // for temporary tensors of the caller's
  }
  bool has_arrived() override { return !work_ || work_->isCompleted(); }

  const Call call_;
  const GroupHandle group_;
  const uint64_t number_;
  const StreamOrigin origin_;
  const WorkPtr work_;  // null when the backend ran the call at once, as NCCL does with synchronous ones
  const std::function<void()> after_;
  const std::optional<std::chrono::milliseconds> wait_limit_;
  std::optional<ScopedWaitEvent> wait_;
  bool was_waited_for_ = false;
  bool is_followed_ = false;
};

class SeveralCalls final : public PendingCall {
 public:
  explicit SeveralCalls(std::vector<std::shared_ptr<PendingCall>> calls) : calls_(std::move(calls)) {}
  uint64_t number() const override { return calls_.empty() ? 0 : calls_.front()->number(); }

 private:
  void finish() override {
    for (const auto& call : calls_) call->wait();
  }
  bool has_arrived() override {
    return std::all_of(calls_.begin(), calls_.end(), [](const auto& call) { return call->has_ended(); });
  }

  const std::vector<std::shared_ptr<PendingCall>> calls_;
};

class CallWithContinuation final : public PendingCall {
 public:
  CallWithContinuation(std::shared_ptr<PendingCall> call, std::function<void()> step)
      : call_(std::move(call)), step_(std::move(step)) {}

 private:
  void finish() override {
    call_->wait();
    const at::NoGradGuard no_grad;
    step_();
  }
  bool has_arrived() override { return call_->has_ended(); }

  const std::shared_ptr<PendingCall> call_;
  const std::function<void()> step_;
};

PendingCall& require(const std::shared_ptr<PendingCall>& call) {
  if (!call) throw std::logic_error("this handle refers to no operation: it was moved from, or then() has taken it");
  return *call;
}

}  // namespace

bool runs_as_one_backend_call(const std::vector<at::Tensor>& tensors, const GroupHandle& group) {
  const auto first = tensors.begin();
  if (!std::all_of(first, tensors.end(), [&](const at::Tensor& tensor) {
        return tensor.scalar_type() == first->scalar_type() && tensor.device() == first->device();
      })) {
    return false;
  }
  const BackendTraits* backend = backend_for(group, first->device());
  return backend != nullptr && backend->joins_python;
}

std::string with_note(std::string how, const BeginOptions& begin) {
  if (!begin.note.empty()) how += (how.empty() ? "" : ", ") + begin.note;
  return how;
}

void append_signature(std::string& text, const char* operation, const char* how, const at::Tensor& tensor) {
  text += operation;
  if (*how != '\0') text.append(" (").append(how).append(")");
  text.append(" of ").append(c10::toString(tensor.scalar_type())).append(" [");
  std::array<char, 24> digits{};
  const auto sizes = tensor.sizes();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i > 0) text += ", ";
    text.append(digits.data(), std::to_chars(digits.begin(), digits.end(), sizes[i]).ptr);
  }
  text += "]";
}

void fail(const Call& call, const GroupHandle& group, uint64_t number, const std::exception& error) {
  std::string text = who(group.info()) + ": " + call.operation;
  if (call.is_collective) {
    text += " (" + place_in_group(call, number) + ")";
  } else {
    text += " " + call.how;
  }
  text += " of a " + subject(call, group) + " failed: " + message_of(error);
  if (call.is_collective) text += failure_cause(group.state(), number);
  throw std::runtime_error(text);
}

// A second wait throws the first error again. It does not repeat steps that have run in part, and does not determine
// the cause again.
void PendingCall::wait() {
  if (error_) std::rethrow_exception(error_);
  if (std::exchange(is_over_, true)) return;
  try {
    finish();
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
}

void wait_for(const std::shared_ptr<PendingCall>& call) {
  require(call).wait();
}

bool has_ended(const std::shared_ptr<PendingCall>& call) {
  return require(call).has_ended();
}

std::shared_ptr<PendingCall> start(Call call, const GroupHandle& group,
                                   const std::function<WorkPtr(c10d::ProcessGroup&)>& begin,
                                   std::function<void()> after, std::optional<std::chrono::milliseconds> wait_limit) {
  GroupState& state = group.state();
  const auto c10d_group = state.group(call.operation);
  refuse_capture_over_host(call, group);
  const uint64_t number =
      call.is_collective ? state.next_operation(signature(call)) : state.log().begin_message(signature(call));
  const at::NoGradGuard no_grad;
  std::optional<ScopedWaitEvent> wait;
  if (call.is_waited_for) wait.emplace(call.operation);
  WorkPtr work;
  try {
    const BackendPurposeScope purpose(purpose_backend(call, group, *c10d_group), thread_call_purpose());
    work = begin(*c10d_group);
  } catch (const std::exception& error) {
    fail(call, group, number, error);
  }
  auto one = std::make_shared<OneCall>(std::move(call), group, number, std::move(work), std::move(after), wait_limit,
                                       std::move(wait));
  one->track_work();
  return one;
}

std::shared_ptr<PendingCall> followed_by(std::shared_ptr<PendingCall> call, std::function<void()> step) {
  require(call);
  return std::make_shared<CallWithContinuation>(std::move(call), std::move(step));
}

std::shared_ptr<PendingCall> all_of(std::vector<std::shared_ptr<PendingCall>> calls) {
  return std::make_shared<SeveralCalls>(std::move(calls));
}

}  // namespace ddp::detail
