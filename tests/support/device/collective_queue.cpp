#include "tests/support/device/collective_queue.h"

#include <stdexcept>
#include <utility>

#include "tests/support/device/devices.h"
#include "tests/support/device/kernel_thread.h"

namespace ddp::test::device {

Queued::~Queued() {
  devices().books.forget(this);
}

CollectiveQueue::~CollectiveQueue() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (const Job& job : jobs_) devices().engine.reach(job.end);
}

// NCCL runs a communicator's calls in the order in which they were made, whatever their streams.
std::shared_ptr<Queued> CollectiveQueue::add(c10::Stream stream, const std::vector<Use>& uses, const std::string& name,
                                             std::function<void()> body) {
  let_go_of_ended();
  auto queued = std::make_shared<Queued>(Queued{.stream = stream});
  for (const Use& use : uses) queued->held.push_back(use.tensor);
  PointPtr before;
  {
    const std::lock_guard lock(mutex_);
    before = std::exchange(last_, queued->end);
    queued_.push_back(queued);
  }
  if (before) devices().engine.wait(key_of(stream), before);
  const auto post = [this, end = queued->end, body = std::move(body)]() mutable {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({.body = std::move(body), .end = end});
    changed_.notify_all();
  };
  launch_waiting_for(stream, uses, name, post, queued->end);
  devices().books.record(queued.get(), stream);
  return queued;
}

void CollectiveQueue::rethrow() {
  const std::lock_guard lock(mutex_);
  if (!error_) return;
  is_said_ = true;
  std::rethrow_exception(error_);
}

std::exception_ptr CollectiveQueue::unsaid() {
  const std::lock_guard lock(mutex_);
  return is_said_ ? nullptr : error_;
}

void CollectiveQueue::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (error_) return;
  error_ = std::make_exception_ptr(std::runtime_error(why));
  is_said_ = true;
}

void CollectiveQueue::drain() {
  PointPtr last;
  {
    const std::lock_guard lock(mutex_);
    last = last_;
  }
  if (last) devices().engine.synchronize(last);
}

// Works that nobody has waited for: what they hold may go when they are over.
void CollectiveQueue::let_go_of_ended() {
  std::list<std::shared_ptr<Queued>> ended;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = queued_.begin(); it != queued_.end();) {
      const auto next = std::next(it);
      if (devices().engine.is_reached((*it)->end)) ended.splice(ended.end(), queued_, it);
      it = next;
    }
  }
  for (const auto& queued : ended) {
    if (!queued->held.empty()) devices().books.host_waits_for(queued.get());
    queued->held.clear();
  }
}

void CollectiveQueue::work() {
  const KernelThread modes;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    const bool has_failed = error_ != nullptr;
    lock.unlock();
    std::exception_ptr error;
    try {
      if (!has_failed) job.body();
    } catch (...) {
      error = std::current_exception();
    }
    job.body = nullptr;
    lock.lock();
    if (error && !error_) error_ = error;
    devices().engine.reach(job.end);
  }
}

}  // namespace ddp::test::device
