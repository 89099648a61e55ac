// Batches made ahead of time by worker threads and given out in order. No LibTorch.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <ddprun/base/progress.h>
#include <ddprun/base/timeline.h>

namespace ddp {

/// A pass over `count` numbered batches at a time. The threads stay from pass to pass. One thread may call start(),
/// next() and stop(); the function that makes batches is called by several at once.
template <typename Batch>
class BatchPipeline {
 public:
  using Make = std::function<Batch(int64_t number)>;
  using Interrupt = std::function<void()>;

  /// `workers` threads make up to `prefetch` batches ahead of the one that next() gives. With 0 workers next() makes
  /// each batch itself. Throws std::invalid_argument for a negative number of workers and a prefetch below 1, and
  /// std::system_error when the system has not that many threads to give.
  BatchPipeline(int workers, int64_t prefetch) : prefetch_(prefetch) {
    if (workers < 0 || prefetch < 1) {
      throw std::invalid_argument("Invalid loader: " + std::to_string(workers) + " workers, " +
                                  std::to_string(prefetch) + " batches ahead; expected 0 or more and 1 or more");
    }
    threads_.reserve(static_cast<size_t>(workers));
    try {
      for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      const size_t started = threads_.size();
      end_threads();
      throw std::system_error(error.code(), "Loader: " + std::to_string(workers) +
                                                " workers were requested, but the system allowed only " +
                                                std::to_string(started) +
                                                " threads: request fewer workers, or raise the limit (ulimit -u, -v)");
    }
  }

  ~BatchPipeline() { end_threads(); }
  BatchPipeline(const BatchPipeline&) = delete;
  BatchPipeline& operator=(const BatchPipeline&) = delete;

  /// Begins a pass; one that still runs is stopped. `interrupt` is called once when the pass is stopped or an error
  /// ends it, while threads may be in `make`, so that it returns soon: what it makes then is dropped.
  void start(int64_t count, Make make, Interrupt interrupt = nullptr) {
    stop();
    interrupt_ = std::move(interrupt);
    {
      const std::lock_guard lock(mutex_);
      make_ = std::move(make);
      given_ = begin_of_next_ = 0;
      end_ = count;
    }
    for_workers_.notify_all();
  }

  /// The next batch of the pass; nullopt at its end. Rethrows what the function threw for this batch, which ends the
  /// pass.
  std::optional<Batch> next() {
    const progress::PhaseScope phase(progress::Phase::kData);
    if (threads_.empty()) return next_here();
    std::unique_lock lock(mutex_);
    if (given_ >= end_) return std::nullopt;
    for_caller_.wait(lock, [&] { return made_.contains(given_); });
    Result result = std::move(made_.extract(given_).mapped());
    ++given_;
    lock.unlock();
    for_workers_.notify_all();
    if (!result.error) return std::move(result.batch);
    stop();
    std::rethrow_exception(result.error);
  }

  /// Ends the pass: waits for the batches that are being made and drops them.
  void stop() {
    interrupt();
    std::map<int64_t, Result> dropped;  // destroyed without the lock
    std::unique_lock lock(mutex_);
    end_ = begin_of_next_ = given_ = 0;
    for_caller_.wait(lock, [&] { return working_ == 0; });
    dropped.swap(made_);
    make_ = nullptr;
  }

 private:
  void interrupt() {
    if (const Interrupt interrupt = std::exchange(interrupt_, nullptr)) interrupt();
  }

  std::optional<Batch> next_here() {
    if (given_ >= end_) return std::nullopt;
    try {
      return make_(given_++);
    } catch (...) {
      stop();
      throw;
    }
  }

  void end_threads() {
    interrupt();
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
      end_ = begin_of_next_ = 0;
    }
    for_workers_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  struct Result {
    std::optional<Batch> batch{};
    std::exception_ptr error{};
  };

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      for_workers_.wait(lock,
                        [&] { return is_ending_ || (begin_of_next_ < end_ && begin_of_next_ < given_ + prefetch_); });
      if (is_ending_) return;
      const int64_t number = begin_of_next_++;
      ++working_;
      lock.unlock();
      Result result = make(number);
      lock.lock();
      --working_;
      made_.emplace(number, std::move(result));
      for_caller_.notify_all();
    }
  }

  Result make(int64_t number) {
    const timeline::Range range("make batch");
    try {
      return {.batch = make_(number)};
    } catch (...) {
      return {.error = std::current_exception()};
    }
  }

  const int64_t prefetch_;
  Interrupt interrupt_;  // of the caller's thread
  std::mutex mutex_;
  std::condition_variable for_workers_;
  std::condition_variable for_caller_;
  Make make_;  // not changed while a worker is in it
  std::map<int64_t, Result> made_;
  int64_t given_ = 0;          // batches that next() has given out
  int64_t begin_of_next_ = 0;  // the first batch that no worker has taken
  int64_t end_ = 0;
  int working_ = 0;
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ddp
