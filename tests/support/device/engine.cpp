#include "tests/support/device/engine.h"

#include <utility>

namespace ddp::test::device {
namespace {

constexpr auto kPause = std::chrono::microseconds(60);
constexpr unsigned kPauseOneIn = 6;
constexpr unsigned kLongestPause = 8;

}  // namespace

Engine::Engine(int devices, const std::function<void(const std::function<void()>& body)>& around) {
  for (int i = 0; i < devices; ++i) devices_.push_back(std::make_unique<Device>());
  for (const auto& device : devices_) {
    device->thread = std::thread([this, around, &device = *device] { around([&] { work(device); }); });
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
  device.changed.notify_one();
}

void Engine::launch(StreamKey stream, std::function<void()> work) {
  PointPtr end;
  {
    const std::lock_guard lock(mutex_);
    push(stream, std::move(work));
    if (!in_program_order_) return;
    end = std::make_shared<Point>();
    push(stream, end);
  }
  synchronize(end);
}

void Engine::launch_waiting_for(StreamKey stream, std::function<void()> work, const PointPtr& end) {
  const std::lock_guard lock(mutex_);
  end->is_awaited = true;
  push(stream, std::move(work));
  push(stream, std::make_shared<PointPtr>(end));
}

PointPtr Engine::record(StreamKey stream) {
  const std::lock_guard lock(mutex_);
  auto point = std::make_shared<Point>();
  push(stream, point);
  return point;
}

void Engine::wait(StreamKey stream, const PointPtr& point) {
  const std::lock_guard lock(mutex_);
  if (point->is_reached) return;
  point->is_awaited = true;
  push(stream, std::make_shared<PointPtr>(point));
}

void Engine::reach_locked(const PointPtr& point) {
  point->is_reached = true;
  ++reached_;
  point->when = std::chrono::steady_clock::now();
  if (!point->is_awaited) return;
  host_.notify_all();
  for (const auto& device : devices_) device->changed.notify_one();
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
  const Stream& queue = devices_.at(static_cast<size_t>(stream.device))->streams[stream.id];
  return queue.items.empty() && !queue.is_running;
}

void Engine::synchronize(const PointPtr& point) {
  std::unique_lock lock(mutex_);
  point->is_awaited = true;
  ++waiting_hosts_;
  for (const auto& device : devices_) device->changed.notify_one();
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
    std::erase_if(device->streams,
                  [](const auto& entry) { return entry.second.items.empty() && !entry.second.is_running; });
  }
}

std::exception_ptr Engine::take_error(int device) {
  const std::lock_guard lock(mutex_);
  return std::exchange(devices_.at(static_cast<size_t>(device))->error, nullptr);
}

// Takes what needs no time from the queue's front.
bool Engine::is_runnable(Stream& stream) {
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
  std::vector<Stream*> runnable;
  std::vector<Stream*> eager;
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
  if (eager.empty() && waiting_hosts_ == 0 && !in_program_order_) {
    device.changed.wait_for(lock, kPause);  // the program goes ahead
    if (is_stopping_) return nullptr;
  }
  const auto& among = eager.empty() ? runnable : eager;
  return among[device.random() % among.size()];
}

void Engine::work(Device& device) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (is_stopping_) return;
    Stream* stream = choose(device, lock);
    if (stream == nullptr) {
      if (!is_stopping_) device.changed.wait(lock);
      continue;
    }
    std::function<void()> kernel = std::move(std::get<std::function<void()>>(stream->items.front()));
    stream->items.pop_front();
    stream->is_running = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      kernel();
    } catch (...) {
      error = std::current_exception();
    }
    kernel = nullptr;  // what it holds may launch something
    lock.lock();
    stream->is_running = false;
    if (error && !device.error) device.error = error;
    if (device.random() % kPauseOneIn == 0) stream->pause = 1 + static_cast<int>(device.random() % kLongestPause);
  }
}

}  // namespace ddp::test::device
