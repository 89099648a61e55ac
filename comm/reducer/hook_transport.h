// Internal: a user's communication hook as a transport of buckets.
#pragma once

#include <memory>
#include <string>

#include "comm/reducer/bucket_transport.h"
#include "comm/reducer/reduction_failure.h"

namespace ddp::detail {

/// Reduces one bucket by a hook; what that throws, now or later, is noted with `rank` and the bucket's number.
class HookTransport final : public BucketTransport {
 public:
  /// `hook` and `bucket` must outlive start().
  HookTransport(const CommHook& hook, GradientBucket& bucket, std::shared_ptr<ReductionFailure> note,
                const std::string& rank);

  TensorFuture start() override;
  c10::IValue finish(c10::ivalue::Future* arrived) override;

 private:
  void check(const at::Tensor& result) const;
  [[noreturn]] void fail(const std::string& message) const;

  const CommHook& hook_;
  GradientBucket& bucket_;
  const std::shared_ptr<ReductionFailure> note_;
  const int64_t elements_;  // of the bucket; -1: it is sparse, and so may the result be
  const std::string place_;
};

}  // namespace ddp::detail
