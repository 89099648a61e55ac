// Internal: collectives that c10d starts by itself or that run in the background have a number in the group's log of
// calls and fail with messages like our own: which rank, which collective, who did not take part.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include <ddprun/comm/gradient_bucket.h>
#include <ddprun/comm/process_group.h>

#include "comm/backends/c10d_compat.h"
#include "comm/reducer/reduction_failure.h"

namespace ddp::detail {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// One collective: takes its number when constructed.
class LoggedCollective {
 public:
  /// `what` is its name in messages. A failure is also written into `note`, if there is one.
  LoggedCollective(GroupHandle group, std::string what, std::shared_ptr<ReductionFailure> note = nullptr);

  /// What `begin` returns, which hands the collective to c10d. Throws std::runtime_error in our words.
  WorkPtr start(const std::function<WorkPtr()>& begin) const;
  /// The value of `done`, the future of start()'s Work. Throws std::runtime_error in our words.
  c10::IValue finish(c10::ivalue::Future& done) const;
  /// start() and finish() together: returns a Work that ends with finish(). NCCL's Work is returned unchanged, because
  /// its watchdog reports errors.
  WorkPtr run(const std::function<WorkPtr()>& begin) const;

  /// For a collective whose end no future reports.
  void end() const;
  [[noreturn]] void fail(const std::exception& error) const;

 private:
  GroupHandle group_;
  std::string what_;
  std::shared_ptr<ReductionFailure> note_;
  uint64_t number_;
};

/// `future` as c10d::Reducer wants it.
WorkPtr work_of(TensorFuture future);

/// "all_reduce of a gradient bucket of 332 bytes".
std::string bucket_text(const at::Tensor& bucket);

}  // namespace ddp::detail
