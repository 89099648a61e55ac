#include "comm/shm/engine.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ddp::shm {

std::shared_ptr<Engine> Engine::make(Segment segment, int rank, bool shares_processors, std::vector<int> numbers) {
  return std::shared_ptr<Engine>(new Engine(std::move(segment), rank, shares_processors, std::move(numbers)));
}

Engine::Engine(Segment segment, int rank, bool shares_processors, std::vector<int> numbers)
    : driver_(segment, rank, std::move(numbers), queue_),
      caller_policy_(shares_processors, SpinPolicy::kIdle),
      thread_policy_(shares_processors, SpinPolicy::kBusy) {}

Engine::~Engine() {
  stop("the group was closed", /*has_failed=*/false);
}

void Engine::check_joint_usable() const {
  queue_.check_usable();
  driver_.check_others();
}

void Engine::start(JointPtr operation) {
  Lock lock(queue_.mutex());
  check_joint_usable();
  queue_.add(std::move(operation));
  begin(lock);
}

void Engine::start(MessagePtr message) {
  Lock lock(queue_.mutex());
  queue_.check_usable();
  queue_.add(std::move(message));
  begin(lock);
}

void Engine::run(const JointPtr& operation) {
  const MakeContinuation itself = [&] { return operation; };
  run(*operation, itself, nullptr);
}

JointPtr Engine::run(JointOperation& operation, const MakeContinuation& make_continuation, WaitObserver* observer) {
  JointPtr continuation;
  {
    Lock lock(queue_.mutex());
    check_joint_usable();
    ++pending_;
    ++started_;
    const bool is_free = !is_driven_ && !queue_.is_stopping();
    if (is_free) {
      driver_.take_new();  // what was started before
      if (!caller_policy_.shares_processors() && driver_.completes_immediately(operation, observer)) {
        subtract_pending(1);
        hand_over();
        return nullptr;
      }
    }
    continuation = make_continuation();
    if (observer != nullptr) observer->late();
    if (is_free) {
      driver_.add(continuation);
      work(lock, {.until = continuation.get()}, caller_policy_);
    } else {
      queue_.add(continuation);
      driver_.wake();
    }
    if (continuation->has_ended()) hand_over();
  }
  wait(*continuation);
  return continuation;
}

// What can be done at once is done here, so that other ranks need not wait for a thread of this one to wake up.
void Engine::begin(Lock& lock) {
  ++pending_;
  ++started_;
  if (is_driven_) return driver_.wake();
  work(lock, {.one_pass = true}, caller_policy_);
  hand_over();
}

void Engine::poll() {
  Lock lock(queue_.mutex(), std::try_to_lock);
  if (!lock || is_driven_ || queue_.is_stopping() || pending_ == 0) return;
  work(lock, {.one_pass = true}, caller_policy_);
  hand_over();
}

void Engine::make_urgent() {
  const Lock lock(queue_.mutex());
  if (pending_ == 0) return;
  is_urgent_ = true;
  if (usable_threads_ == 0 && !is_driven_) start_thread();
  for_thread_.notify_all();
}

bool Engine::wait(const Operation& operation, std::optional<std::chrono::milliseconds> limit) {
  if (operation.has_ended()) return true;
  std::optional<Clock::time_point> time;
  if (limit) time = Clock::now() + *limit;
  Lock lock(queue_.mutex());
  while (!operation.has_ended() && !(time && Clock::now() >= *time)) {
    // Who stops the engine waits for the role of the driver, and then ends the operation.
    if (!is_driven_ && !queue_.is_stopping()) {
      work(lock, {.until = &operation, .time = time}, caller_policy_);
      continue;
    }
    ++waiting_;
    if (time) {
      changed_.wait_until(lock, *time);
    } else {
      changed_.wait(lock);
    }
    --waiting_;
  }
  hand_over();
  return operation.has_ended();
}

void Engine::limit(Message& message, std::chrono::milliseconds timeout) {
  message.set_timeout(timeout);  // for its error
  message.set_deadline(Clock::now() + timeout);
  driver_.wake();
}

// Takes the role of the thread that drives, and gives it back.
void Engine::work(Lock& lock, const Driver::Limit& limit, SpinPolicy& policy) {
  is_driven_ = true;
  driver_.take_new();
  lock.unlock();
  driver_.drive(limit, policy);
  lock.lock();
  is_driven_ = false;
  std::vector<OperationPtr>& ended = driver_.ended();
  subtract_pending(ended.size());
  if (waiting_ > 0) changed_.notify_all();
  const auto has_callback = [](const OperationPtr& operation) { return operation->on_end_ != nullptr; };
  if (!std::ranges::any_of(ended, has_callback)) return ended.clear();
  const std::vector<OperationPtr> operations = std::exchange(ended, {});
  const bool is_own_thread = &policy == &thread_policy_;
  if (is_own_thread) --usable_threads_;
  // A function of the program may wait for other operations.
  if (std::ranges::any_of(operations, [](const OperationPtr& one) { return one->calls_program(); })) hand_over();
  call_callbacks(lock, operations);
  if (is_own_thread) ++usable_threads_;
}

// Called with the lock held: `ended` operations have ended.
void Engine::subtract_pending(size_t ended) {
  pending_ -= ended;
  if (pending_ == 0) is_urgent_ = false;
}

// Callbacks run without the role of the driver and without the lock: they may start operations.
void Engine::call_callbacks(Lock& lock, const std::vector<OperationPtr>& ended) {
  lock.unlock();
  for (const OperationPtr& operation : ended) {
    if (operation->on_end_) std::exchange(operation->on_end_, nullptr)();
  }
  lock.lock();
}

// With the lock, when no thread drives.
bool Engine::is_needed_by_others() const {
  return pending_ != 1 || driver_.is_needed_by_others();
}

// With the lock. What is left is the thread's, unless somebody who waits takes it first.
void Engine::hand_over() {
  if (pending_ == 0 || is_driven_ || queue_.is_stopping()) return;
  if (usable_threads_ == 0) start_thread();
  if (is_needed_by_others()) is_urgent_ = true;
  if (is_urgent_ || !checks_later_) for_thread_.notify_all();
}

// With the lock.
void Engine::start_thread() {
  if (queue_.is_stopping()) return;
  threads_.emplace_back([self = shared_from_this()] { self->run_thread(); });
  ++usable_threads_;
}

void Engine::run_thread() {
  Lock lock(queue_.mutex());
  bool goes_on = false;  // there is more that no thread waits for
  for (;;) {
    for_thread_.wait(lock, [&] { return queue_.is_stopping() || (pending_ > 0 && !is_driven_); });
    if (!is_urgent_ && !goes_on) check_later(lock);
    if (queue_.is_stopping()) return;
    is_urgent_ = false;
    const bool is_free = pending_ > 0 && !is_driven_;
    if (is_free) work(lock, {}, thread_policy_);  // until one has ended
    goes_on = is_free && pending_ > 0;
  }
}

// Returns when others wait, when the same operation has been left for a while, or when there is nothing any more.
void Engine::check_later(Lock& lock) {
  constexpr auto kCheckInterval = std::chrono::milliseconds(5);
  checks_later_ = true;
  for (uint64_t seen = 0; seen != started_;) {
    seen = started_;
    if (for_thread_.wait_for(lock, kCheckInterval, [&] { return queue_.is_stopping() || is_urgent_; })) break;
  }
  checks_later_ = false;
}

void Engine::await_role(Lock& lock) {
  while (is_driven_) {
    ++waiting_;
    changed_.wait(lock);
    --waiting_;
  }
}

// The others may wait for what this rank has only begun. Callbacks may start more.
void Engine::finish(Lock& lock) {
  for (;;) {
    await_role(lock);
    driver_.take_new();
    const JointPtr last = driver_.last();
    if (!last || queue_.is_aborting()) return;
    work(lock, {.until = last.get(), .is_finishing = true}, caller_policy_);
  }
}

void Engine::stop(const std::string& why, bool has_failed) {
  Lock lock(queue_.mutex());
  if (has_failed) queue_.abort();
  queue_.stop();
  driver_.wake();
  if (std::exchange(has_left_, true)) return;
  for_thread_.notify_all();
  finish(lock);
  const auto error = std::make_exception_ptr(std::runtime_error(why));
  queue_.fail(error);
  driver_.leave(error, has_failed);
  work(lock, {.one_pass = true}, caller_policy_);
  std::vector<std::thread> threads = std::move(threads_);
  lock.unlock();
  for (std::thread& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

}  // namespace ddp::shm
