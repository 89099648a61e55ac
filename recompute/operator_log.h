// The names of the operators that a thread calls, for the error that says where two runs of a region differ.
#pragma once

#include <ATen/record_function.h>

#include <string>
#include <vector>

namespace ddp::recompute {

using OperatorNames = std::vector<std::string>;

/// While it lives, the names of the operators that the calling thread calls are appended to `names`.
class OperatorLog {
 public:
  explicit OperatorLog(OperatorNames& names);
  ~OperatorLog();
  OperatorLog(const OperatorLog&) = delete;
  OperatorLog& operator=(const OperatorLog&) = delete;

 private:
  OperatorNames* previous_;
  at::CallbackHandle handle_;
};

/// One sentence on the first operator in which the two runs differ; empty when they do not.
std::string first_difference(const OperatorNames& forward, const OperatorNames& recomputation);

}  // namespace ddp::recompute
