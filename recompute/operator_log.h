// Logs the operators that a thread calls, for the error message that says where two runs of a region differ.
#pragma once

#include <ATen/record_function.h>

#include <string>
#include <vector>

namespace ddp::recompute {

/// The names of operators in the order of their calls, and the names of those that have not returned, the innermost
/// last.
struct OperatorCalls {
  std::vector<std::string> all;
  std::vector<std::string> active;
};

/// During its lifetime, the operator calls of the calling thread are recorded in `calls`.
class OperatorLog {
 public:
  explicit OperatorLog(OperatorCalls& calls);
  ~OperatorLog();
  OperatorLog(const OperatorLog&) = delete;
  OperatorLog& operator=(const OperatorLog&) = delete;

 private:
  OperatorCalls* previous_;
  at::CallbackHandle handle_;
};

/// During its lifetime, the operator calls of the calling thread are not recorded.
class OperatorLogPause {
 public:
  OperatorLogPause();
  ~OperatorLogPause();
  OperatorLogPause(const OperatorLogPause&) = delete;
  OperatorLogPause& operator=(const OperatorLogPause&) = delete;

 private:
  OperatorCalls* paused_;
};

/// Returns a sentence about the first operator in which the two runs differ, or an empty string if they do not differ.
std::string first_difference(const std::vector<std::string>& forward, const std::vector<std::string>& recomputation);

}  // namespace ddp::recompute
