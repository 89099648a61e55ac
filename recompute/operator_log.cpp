#include "recompute/operator_log.h"

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>

namespace ddp::recompute {
namespace {

thread_local OperatorCalls* calls_of_thread = nullptr;  // a global, because LibTorch's callbacks are plain functions

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& function) {
  if (calls_of_thread == nullptr) return nullptr;
  calls_of_thread->all.emplace_back(function.name());
  calls_of_thread->active.emplace_back(function.name());
  return nullptr;
}

void on_end(const at::RecordFunction& /*function*/, at::ObserverContext* /*context*/) {
  if (calls_of_thread != nullptr && !calls_of_thread->active.empty()) calls_of_thread->active.pop_back();
}

}  // namespace

OperatorLog::OperatorLog(OperatorCalls& calls)
    : previous_(std::exchange(calls_of_thread, &calls)),
      // One callback serves all logs of a thread. It records calls in the innermost log.
      handle_(previous_ != nullptr
                  ? at::INVALID_CALLBACK_HANDLE
                  : at::addThreadLocalCallback(
                        at::RecordFunctionCallback(on_begin, on_end).scopes({at::RecordScope::FUNCTION}))) {}

OperatorLog::~OperatorLog() {
  if (handle_ != at::INVALID_CALLBACK_HANDLE) at::removeCallback(handle_);
  calls_of_thread = previous_;
}

OperatorLogPause::OperatorLogPause() : paused_(std::exchange(calls_of_thread, nullptr)) {}

OperatorLogPause::~OperatorLogPause() {
  calls_of_thread = paused_;
}

std::string first_difference(const std::vector<std::string>& forward, const std::vector<std::string>& recomputation) {
  const auto [left, right] = std::mismatch(forward.begin(), forward.end(), recomputation.begin(), recomputation.end());
  if (left == forward.end() && right == recomputation.end()) return "";
  const auto name = [](auto at, auto end) { return at == end ? std::string("nothing more") : *at; };
  return "operator " + std::to_string(left - forward.begin() + 1) + " was " + name(left, forward.end()) +
         " in the forward and " + name(right, recomputation.end()) + " in the recomputation";
}

}  // namespace ddp::recompute
