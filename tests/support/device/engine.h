// The devices' threads: each works off the queues of its streams, in an order among streams and with pauses that a seed
// decides, so that what nothing orders really happens in other orders. No LibTorch here.
#pragma once

#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <variant>
#include <vector>

namespace ddp::test::device {

struct StreamKey {
  int device = 0;
  int64_t id = 0;
  auto operator<=>(const StreamKey&) const = default;
};

/// One point of a stream, or something that others complete. Used by the engine alone.
struct Point {
  bool is_reached = false;
  bool is_host_waiting = false;
  uint64_t waiting_devices = 0;  // a bit each
  std::chrono::steady_clock::time_point when{};
};
using PointPtr = std::shared_ptr<Point>;

struct Schedule {
  uint64_t seed = 0;
  /// Each launch returns when it has been carried out, as with CUDA_LAUNCH_BLOCKING=1; no order but the program's.
  bool in_program_order = false;
};

class Engine {
 public:
  /// `around` runs what runs kernels, with the modes that these need.
  Engine(int devices, std::function<void(const std::function<void()>& body)> around);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// For what is launched from now on.
  void set_schedule(Schedule schedule);

  /// Puts work into a stream's queue. What it throws is kept for take_error().
  void launch(StreamKey stream, std::function<void()> work);
  /// The same; what follows waits for `end`, which others reach.
  void launch_waiting_for(StreamKey stream, std::function<void()> work, const PointPtr& end);
  /// A point that is reached when all that is queued by now has been done.
  PointPtr record(StreamKey stream);
  /// What is queued from now on waits for the point.
  void wait(StreamKey stream, const PointPtr& point);
  /// Of points that record() has not made.
  void reach(const PointPtr& point);

  bool is_reached(const PointPtr& point);
  bool is_idle(StreamKey stream);
  /// The host waits.
  void synchronize(const PointPtr& point);
  void synchronize_device(int device);
  /// Streams without work cost nothing any more.
  void forget_idle_streams();

  /// The first exception of the device's kernels since the last call, or null.
  std::exception_ptr take_error(int device);

 private:
  using Item = std::variant<std::function<void()>, PointPtr, std::shared_ptr<PointPtr>>;  // work, to reach, to wait for
  struct Stream {
    std::deque<Item> items{};
    int pause = 0;  // how often others are preferred
    bool is_running = false;
    bool is_idle() const { return items.empty() && !is_running; }
  };
  struct Device {
    uint64_t bit = 0;
    std::map<int64_t, Stream> streams{};
    std::condition_variable changed{};
    bool is_idle = false;     // nothing can be done until something changes
    bool is_napping = false;  // there is something to do, for which nobody waits
    bool has_new_work = false;
    std::vector<Stream*> runnable{};
    std::vector<Stream*> eager{};
    std::mt19937_64 random{};
    std::exception_ptr error{};
    std::thread thread{};
  };

  void work(Device& device);
  /// Without the lock, but for its ends.
  static void run(Device& device, Stream& stream, std::function<void()>& work, std::unique_lock<std::mutex>& lock);
  Stream* choose(Device& device, std::unique_lock<std::mutex>& lock);
  void be_idle(Device& device, std::unique_lock<std::mutex>& lock);
  void nap(Device& device, std::unique_lock<std::mutex>& lock, std::chrono::microseconds longest);
  bool is_runnable(Stream& stream);
  void reach_locked(const PointPtr& point);
  static void wake(Device& device);
  void push(StreamKey stream, Item item);

  const std::function<void(const std::function<void()>& body)> around_;
  std::mutex mutex_;
  std::condition_variable host_;
  int waiting_hosts_ = 0;
  uint64_t reached_ = 0;  // points
  bool is_stopping_ = false;
  bool in_program_order_ = false;
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace ddp::test::device
