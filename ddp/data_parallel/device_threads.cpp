#include "ddp/data_parallel/device_threads.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace ddp {
namespace {

// The caller's current streams on every device, not only on those in use: a copy between two devices runs on the
// current streams of both, and a batch may come from anywhere.
std::vector<c10::Stream> current_streams(c10::DeviceType type) {
  std::vector<c10::Stream> streams;
  if (type == c10::kCPU) return streams;
  const c10::impl::VirtualGuardImpl devices(type);
  for (c10::DeviceIndex index = 0; index < devices.deviceCount(); ++index) {
    streams.push_back(devices.getStream(c10::Device(type, index)));
  }
  return streams;
}

c10::OptionalDeviceGuard guard_for(c10::Device device) {
  return c10::OptionalDeviceGuard(device.is_cpu() ? std::nullopt : std::optional(device));
}

std::exception_ptr run_guarded(const std::function<void()>& task) {
  try {
    task();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

class DeviceThreads::Worker {
 public:
  explicit Worker(c10::Device device) : device_(device), thread_([this] { loop(); }) {}

  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void begin(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      task_ = std::move(task);
    }
    changed_.notify_all();
  }

  std::exception_ptr end() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !task_; });
    return std::exchange(error_, nullptr);
  }

 private:
  void loop() {
    const c10::OptionalDeviceGuard guard = guard_for(device_);
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stop_ || task_; });
      if (stop_) return;
      lock.unlock();
      const std::exception_ptr error = run_guarded(task_);
      lock.lock();
      error_ = error;
      task_ = nullptr;
      changed_.notify_all();
    }
  }

  const c10::Device device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> task_;  // empty: the thread is idle
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;  // declared last, since the thread uses the other members
};

DeviceThreads::DeviceThreads(const std::vector<c10::Device>& devices) : devices_(devices) {
  for (size_t i = 1; i < devices.size(); ++i) workers_.push_back(std::make_unique<Worker>(devices[i]));
}

DeviceThreads::~DeviceThreads() = default;

std::vector<std::exception_ptr> DeviceThreads::run(const std::vector<std::function<void()>>& tasks) {
  const at::ThreadLocalState state;
  const bool caches_casts = at::autocast::is_autocast_cache_enabled();  // the state above does not contain it
  const std::vector<c10::Stream> streams = current_streams(devices_[0].type());
  for (size_t i = 1; i < tasks.size(); ++i) {
    workers_[i - 1]->begin([&, i] {
      const at::ThreadLocalStateGuard state_guard(state);
      at::autocast::set_autocast_cache_enabled(caches_casts);
      const c10::OptionalDeviceGuard device_guard = guard_for(devices_[i]);  // the last task may have changed it
      const c10::MultiStreamGuard stream_guard(streams);
      tasks[i]();
    });
  }
  std::vector<std::exception_ptr> errors;
  {
    const c10::OptionalDeviceGuard guard = guard_for(devices_[0]);
    errors.push_back(run_guarded(tasks.at(0)));
  }
  for (size_t i = 1; i < tasks.size(); ++i) errors.push_back(workers_[i - 1]->end());
  return errors;
}

}  // namespace ddp
