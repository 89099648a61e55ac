#include "tests/support/device/collective_queue.h"

#include <stdexcept>
#include <utility>

#include "tests/support/device/devices.h"
#include "tests/support/device/kernel_thread.h"

namespace ddp::test::device {

Queued::~Queued() {
  devices().books.forget(this);
}

void CollectiveQueue::stop() {
  std::deque<Job> left_out;
  {
    const std::lock_guard lock(reached_->mutex);
    reached_->is_stopped = true;
    left_out.swap(reached_->jobs);
  }
  reached_->changed.notify_all();
  if (thread_.joinable()) thread_.join();
  for (const Job& job : left_out) devices().engine.reach(job.end);
  let_go_of_ended();
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
  const auto post = [reached = reached_, end = queued->end, body = std::move(body)]() mutable {
    std::unique_lock lock(reached->mutex);
    if (!reached->is_stopped) {
      reached->jobs.push_back({.body = std::move(body), .end = end});
      reached->changed.notify_all();
      return;
    }
    lock.unlock();
    devices().engine.reach(end);
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
  let_go_of_ended();
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
  for (;;) {
    Job job;
    {
      std::unique_lock lock(reached_->mutex);
      reached_->changed.wait(lock, [this] { return reached_->is_stopped || !reached_->jobs.empty(); });
      if (reached_->jobs.empty()) return;
      job = std::move(reached_->jobs.front());
      reached_->jobs.pop_front();
    }
    std::unique_lock lock(mutex_);
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
    lock.unlock();
    devices().engine.reach(job.end);
  }
}

}  // namespace ddp::test::device
