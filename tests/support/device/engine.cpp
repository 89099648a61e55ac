#include "tests/support/device/engine.h"

#include <utility>

namespace ddp::test::device {
namespace {

// How far the program goes ahead while nobody waits for the device: of what is queued then any order is possible, and
// threads are not woken for each kernel.
constexpr auto kHeadStart = std::chrono::microseconds(200);
constexpr auto kPause = std::chrono::microseconds(60);
constexpr unsigned kPauseOneIn = 6;
constexpr unsigned kLongestPause = 8;

}  // namespace

Engine::Engine(int devices, std::function<void(const std::function<void()>& body)> around)
    : around_(std::move(around)) {
  for (int i = 0; i < devices; ++i) {
    devices_.push_back(std::make_unique<Device>());
    devices_.back()->bit = uint64_t{1} << i;
  }
  for (const auto& device : devices_) {
    device->thread = std::thread([this, &device = *device] { around_([&] { work(device); }); });
  }
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  for (const auto& device : devices_) device->changed.notify_all();
  for (const auto& device : devices_) device->thread.join();
}

void Engine::set_schedule(Schedule schedule) {
  const std::lock_guard lock(mutex_);
  in_program_order_ = schedule.in_program_order;
  for (size_t i = 0; i < devices_.size(); ++i) devices_[i]->random.seed(schedule.seed * 64 + i);
}

void Engine::push(StreamKey stream, Item item) {
  Device& device = *devices_.at(static_cast<size_t>(stream.device));
  device.streams[stream.id].items.push_back(std::move(item));
  device.has_new_work = true;
  wake(device);
}

void Engine::wake(Device& device) {
  if (!std::exchange(device.is_idle, false)) return;
  device.changed.notify_one();
}

void Engine::launch(StreamKey key, std::function<void()> work) {
  PointPtr end;
  {
    std::unique_lock lock(mutex_);
    if (in_program_order_) {
      // By this thread: that of the device would have to be woken, and waited for.
      Device& device = *devices_.at(static_cast<size_t>(key.device));
      Stream& stream = device.streams[key.id];
      if (stream.is_idle()) {
        std::function<void()> with_modes = [&] { around_(work); };
        return run(device, stream, with_modes, lock);
      }
    }
    push(key, std::move(work));
    if (!in_program_order_) return;
    end = std::make_shared<Point>();
    push(key, end);
  }
  synchronize(end);
}

void Engine::run(Device& device, Stream& stream, std::function<void()>& work, std::unique_lock<std::mutex>& lock) {
  stream.is_running = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  work = nullptr;  // what it holds may launch something
  lock.lock();
  stream.is_running = false;
  if (error && !device.error) device.error = error;
  if (!stream.items.empty()) wake(device);
}

void Engine::launch_waiting_for(StreamKey stream, std::function<void()> work, const PointPtr& end) {
  const std::lock_guard lock(mutex_);
  end->waiting_devices |= devices_.at(static_cast<size_t>(stream.device))->bit;
  push(stream, std::move(work));
  push(stream, std::make_shared<PointPtr>(end));
}

PointPtr Engine::record(StreamKey stream) {
  const std::lock_guard lock(mutex_);
  auto point = std::make_shared<Point>();
  if (devices_.at(static_cast<size_t>(stream.device))->streams[stream.id].is_idle()) {
    reach_locked(point);
  } else {
    push(stream, point);
  }
  return point;
}

void Engine::wait(StreamKey stream, const PointPtr& point) {
  const std::lock_guard lock(mutex_);
  if (point->is_reached) return;
  point->waiting_devices |= devices_.at(static_cast<size_t>(stream.device))->bit;
  push(stream, std::make_shared<PointPtr>(point));
}

void Engine::reach_locked(const PointPtr& point) {
  point->is_reached = true;
  ++reached_;
  point->when = std::chrono::steady_clock::now();
  if (point->is_host_waiting) host_.notify_all();
  if (point->waiting_devices == 0) return;
  for (const auto& device : devices_) {
    if ((point->waiting_devices & device->bit) != 0) wake(*device);
  }
}

void Engine::reach(const PointPtr& point) {
  const std::lock_guard lock(mutex_);
  reach_locked(point);
}

bool Engine::is_reached(const PointPtr& point) {
  const std::lock_guard lock(mutex_);
  return point->is_reached;
}

bool Engine::is_idle(StreamKey stream) {
  const std::lock_guard lock(mutex_);
  return devices_.at(static_cast<size_t>(stream.device))->streams[stream.id].is_idle();
}

void Engine::synchronize(const PointPtr& point) {
  std::unique_lock lock(mutex_);
  if (point->is_reached) return;
  point->is_host_waiting = true;
  ++waiting_hosts_;
  for (const auto& device : devices_) {
    if (device->is_napping) device->changed.notify_one();
  }
  host_.wait(lock, [&] { return point->is_reached; });
  --waiting_hosts_;
}

void Engine::synchronize_device(int index) {
  std::vector<PointPtr> ends;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, stream] : devices_.at(static_cast<size_t>(index))->streams) {
      ends.push_back(std::make_shared<Point>());
      push({index, id}, ends.back());
    }
  }
  for (const PointPtr& end : ends) synchronize(end);
}

void Engine::forget_idle_streams() {
  const std::lock_guard lock(mutex_);
  for (const auto& device : devices_) {
    std::erase_if(device->streams, [](const auto& entry) { return entry.second.is_idle(); });
  }
}

std::exception_ptr Engine::take_error(int device) {
  const std::lock_guard lock(mutex_);
  return std::exchange(devices_.at(static_cast<size_t>(device))->error, nullptr);
}

// Takes what needs no time from the queue's front.
bool Engine::is_runnable(Stream& stream) {
  if (stream.is_running) return false;  // by a thread of the host
  while (!stream.items.empty()) {
    Item& first = stream.items.front();
    if (const auto* reached = std::get_if<PointPtr>(&first)) {
      reach_locked(*reached);
    } else if (const auto* awaited = std::get_if<std::shared_ptr<PointPtr>>(&first)) {
      if (!(**awaited)->is_reached) return false;
    } else {
      return true;
    }
    stream.items.pop_front();
  }
  return false;
}

// Null when nothing can be done until something changes.
Engine::Stream* Engine::choose(Device& device, std::unique_lock<std::mutex>& lock) {
  // What one stream reaches, others may wait for.
  uint64_t before = 0;
  do {
    before = reached_;
    for (auto& [id, stream] : device.streams) is_runnable(stream);
  } while (reached_ != before);
  std::vector<Stream*>& runnable = device.runnable;
  std::vector<Stream*>& eager = device.eager;
  runnable.clear();
  eager.clear();
  for (auto& [id, stream] : device.streams) {
    if (!is_runnable(stream)) continue;
    runnable.push_back(&stream);
    if (stream.pause > 0) {
      --stream.pause;
    } else {
      eager.push_back(&stream);
    }
  }
  if (runnable.empty()) return nullptr;
  if (eager.empty()) {
    nap(device, lock, kPause);
    if (is_stopping_) return nullptr;
  }
  const auto& among = eager.empty() ? runnable : eager;
  return among[device.random() % among.size()];
}

void Engine::be_idle(Device& device, std::unique_lock<std::mutex>& lock) {
  device.is_idle = true;
  device.has_new_work = false;
  device.changed.wait(lock, [&] { return !device.is_idle || is_stopping_; });
  device.is_idle = false;
  if (device.has_new_work) nap(device, lock, kHeadStart);
}

void Engine::nap(Device& device, std::unique_lock<std::mutex>& lock, std::chrono::microseconds longest) {
  device.is_napping = true;
  device.changed.wait_for(lock, longest, [&] { return waiting_hosts_ > 0 || in_program_order_ || is_stopping_; });
  device.is_napping = false;
}

void Engine::work(Device& device) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (is_stopping_) return;
    Stream* stream = choose(device, lock);
    if (stream == nullptr) {
      be_idle(device, lock);
      continue;
    }
    std::function<void()> kernel = std::move(std::get<std::function<void()>>(stream->items.front()));
    stream->items.pop_front();
    run(device, *stream, kernel, lock);
    if (device.random() % kPauseOneIn == 0) stream->pause = 1 + static_cast<int>(device.random() % kLongestPause);
  }
}

}  // namespace ddp::test::device
