// Internal: a user's communication hook as c10d::Reducer wants it.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ddprun/comm/gradient_bucket.h>

#include "comm/backends/c10d_compat.h"
#include "comm/group/watched_work.h"

namespace ddp::detail {

/// The first failure of a reduction on this rank; written by whichever thread sees it.
class FailureNote {
 public:
  void set(const std::string& message) {
    const std::lock_guard lock(mutex_);
    if (message_.empty()) message_ = message;
  }
  std::string get() const {
    const std::lock_guard lock(mutex_);
    return message_;
  }

 private:
  mutable std::mutex mutex_;
  std::string message_;
};

/// Runs the hook for each bucket; what it throws, now or later, gets the rank and bucket and is noted in `failure`.
class CommHookAdapter final : public c10d::CommHookInterface {
 public:
  using FindParameters = std::function<std::vector<at::Tensor>(size_t bucket)>;
  CommHookAdapter(CommHook hook, std::string rank, BucketCheck check, FindParameters parameters,
                  std::shared_ptr<FailureNote> failure);

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

 private:
  [[noreturn]] void fail(const std::string& message) const;
  TensorFuture noting_errors(const TensorFuture& future, const std::string& place) const;

  CommHook hook_;
  std::string rank_;
  BucketCheck check_;
  FindParameters parameters_;
  std::shared_ptr<FailureNote> failure_;
};

}  // namespace ddp::detail
