#include "recompute/operator_log.h"

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>

namespace ddp::recompute {
namespace {

thread_local OperatorNames* names_of_thread = nullptr;  // LibTorch's callbacks are plain functions

std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& function) {
  if (names_of_thread != nullptr) names_of_thread->emplace_back(function.name());
  return nullptr;
}

}  // namespace

OperatorLog::OperatorLog(OperatorNames& names)
    : previous_(std::exchange(names_of_thread, &names)),
      // One callback writes for all logs of a thread: the names belong to the innermost.
      handle_(previous_ != nullptr ? at::INVALID_CALLBACK_HANDLE
                                   : at::addThreadLocalCallback(
                                         at::RecordFunctionCallback(on_operator).scopes({at::RecordScope::FUNCTION}))) {
}

OperatorLog::~OperatorLog() {
  if (handle_ != at::INVALID_CALLBACK_HANDLE) at::removeCallback(handle_);
  names_of_thread = previous_;
}

std::string first_difference(const OperatorNames& forward, const OperatorNames& recomputation) {
  const auto [left, right] = std::mismatch(forward.begin(), forward.end(), recomputation.begin(), recomputation.end());
  if (left == forward.end() && right == recomputation.end()) return "";
  const auto name = [](auto at, auto end) { return at == end ? std::string("nothing more") : *at; };
  return "operator " + std::to_string(left - forward.begin() + 1) + " was " + name(left, forward.end()) +
         " in the forward and " + name(right, recomputation.end()) + " in the recomputation";
}

}  // namespace ddp::recompute
