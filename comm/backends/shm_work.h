// Internal: what c10d gives out for an operation in shared memory.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/backends/c10d_compat.h"
#include "comm/shm/engine.h"

namespace ddp::detail {

class ShmWork final : public c10d::Work {
 public:
  /// What it is, for profilers, and what it keeps until it has ended: `outputs` are its result.
  struct Description {
    int rank = 0;
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* title = nullptr;  ///< null: not an event
    std::vector<at::Tensor> inputs{};
    std::vector<at::Tensor> outputs{};
    std::vector<at::Tensor> list{};  ///< inputs of the call of which this is the last part; empty: this is all of it
    uint64_t number = 0;
  };

  ShmWork(Description about, std::shared_ptr<shm::Engine> engine, std::shared_ptr<shm::Operation> operation,
          std::shared_ptr<shm::Message> message = nullptr);

  /// Once, when the operation has ended: completes the future and the profiler's record, and notifies the waiters.
  void complete() noexcept;
  /// Once at most: what is called when it has ended, at once where it has, and whether it has failed. Unlike a callback
  /// of the future it does not start a thread.
  using EndCallback = std::function<void(bool has_failed)>;
  void add_end_callback(EndCallback callback);

  bool isCompleted() override;
  bool isSuccess() const override { return operation_->has_ended() && !operation_->error(); }
  std::exception_ptr exception() const override { return operation_->error(); }
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return description_.outputs; }
  /// As gloo's: a collective that has not ended in `timeout` continues, a message is cancelled.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override {}
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return description_.number; }

 private:
  /// False when another thread has, or is about to.
  bool finish_once(c10::ivalue::Future& future);

  const Description description_;
  const std::shared_ptr<shm::Engine> engine_;
  const std::shared_ptr<shm::Operation> operation_;
  const std::shared_ptr<shm::Message> message_;  // the same, where it is one
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // made at the first request
  std::atomic<bool> is_finished_{false};            // the future has its value, or is about to
  bool is_complete_ = false;                        // with the mutex
  EndCallback callback_;
};

/// Has `callback` called when `work` has ended, without making it end sooner; it must not throw. False where the work
/// has no callback for the host.
bool add_end_callback(c10d::Work& work, ShmWork::EndCallback callback);

}  // namespace ddp::detail
