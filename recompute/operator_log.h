// The operators that a thread calls, for the error that says where two runs of a region differ.
#pragma once

#include <ATen/record_function.h>

#include <string>
#include <vector>

namespace ddp::recompute {

/// The names of operators in the order of their calls, and of those that have not returned, the innermost last.
struct OperatorCalls {
  std::vector<std::string> all;
  std::vector<std::string> active;
};

/// While it lives, the calling thread's calls are noted in `calls`.
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

/// While it lives, the calling thread's calls are not noted.
class OperatorLogPause {
 public:
  OperatorLogPause();
  ~OperatorLogPause();
  OperatorLogPause(const OperatorLogPause&) = delete;
  OperatorLogPause& operator=(const OperatorLogPause&) = delete;

 private:
  OperatorCalls* paused_;
};

/// One sentence on the first operator in which the two runs differ; empty when they do not.
std::string first_difference(const std::vector<std::string>& forward, const std::vector<std::string>& recomputation);

}  // namespace ddp::recompute
