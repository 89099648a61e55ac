// The thread that carries out a communicator's collectives, one after the other, when its stream has reached them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/device/engine.h"
#include "tests/support/device/launch.h"

namespace ddp::test::device {

/// One collective that has been queued. Whoever waits for it lets its tensors go.
struct Queued {
  ~Queued();
  PointPtr end = std::make_shared<Point>();
  c10::Stream stream;
  std::vector<at::Tensor> held{};
};

class CollectiveQueue {
 public:
  CollectiveQueue() = default;
  ~CollectiveQueue() { stop(); }
  CollectiveQueue(const CollectiveQueue&) = delete;
  CollectiveQueue& operator=(const CollectiveQueue&) = delete;

  /// `body` runs on the queue's thread after all that is on `stream` by now; what follows on the stream waits for it.
  std::shared_ptr<Queued> add(c10::Stream stream, const std::vector<Use>& uses, const std::string& name,
                              std::function<void()> body);
  /// Throws what the first failed collective has thrown.
  void rethrow();
  /// The same, if nothing has thrown it yet; else null.
  std::exception_ptr unsaid();
  /// What is queued from now on fails at once.
  void fail(const std::string& why);
  /// The host waits for all that was added.
  void drain();
  /// What has not begun is left out, also where its stream comes to it later: no stream waits for it. The one that is
  /// under way must be able to end.
  void stop();

 private:
  struct Job {
    std::function<void()> body{};
    PointPtr end{};
  };
  // Collectives whose stream has reached them. The streams hold it: they may come when the queue is gone.
  struct Reached {
    std::mutex mutex{};
    std::condition_variable changed{};
    std::deque<Job> jobs{};
    bool is_stopped = false;
  };
  void work();
  void let_go_of_ended();

  const std::shared_ptr<Reached> reached_ = std::make_shared<Reached>();
  std::mutex mutex_;
  std::list<std::shared_ptr<Queued>> queued_;
  PointPtr last_;
  std::exception_ptr error_;
  bool is_said_ = false;
  std::thread thread_{[this] { work(); }};
};

}  // namespace ddp::test::device
