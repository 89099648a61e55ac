#include "comm/backends/shm_hosts.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "comm/backends/shm_tensors.h"
#include "comm/core/call_purpose.h"

namespace ddp::detail {

// A call of a collective. The thread that runs it also ends it.
class ShmHostsBackend::Call final : public c10d::Work {
 public:
  Call(int rank, c10d::OpType type, const char* title, Tensors tensors, std::chrono::milliseconds timeout,
       std::vector<Step> steps, uint64_t number, uint16_t purpose)
      : Work(rank, type, title, tensors),
        tensors_(std::move(tensors)),
        timeout_(timeout),
        steps_(std::move(steps)),
        number_(number),
        purpose_(purpose),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

  // Each step may use the time that the earlier steps have left.
  void run() {
    using Clock = std::chrono::steady_clock;
    const at::NoGradGuard no_grad;
    const auto deadline = Clock::now() + timeout_;
    for (const Step& step : steps_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      step(std::max(left, std::chrono::milliseconds(1)));
    }
  }

  void end(std::exception_ptr error) noexcept {
    steps_.clear();
    try {
      finish(error);
      if (error) {
        future_->setError(error);
      } else {
        future_->markCompleted(c10::IValue(tensors_));
      }
    } catch (...) {  // NOLINT(bugprone-empty-catch): a callback of the future has thrown, and there is no caller
    }
  }

  std::vector<at::Tensor> result() override { return tensors_; }
  // If the call has ended, this waits until the future is completed too: the thread that ended the call may not have
  // done that yet.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    if (isCompleted()) future_->wait();
    return future_;
  }
  uint64_t getSequencenumber() const override { return number_; }
  uint16_t purpose() const { return purpose_; }

 private:
  const Tensors tensors_;
  const std::chrono::milliseconds timeout_;
  std::vector<Step> steps_;
  const uint64_t number_;
  const uint16_t purpose_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Runs the calls one after another in a thread, which may outlive the backend. The end of a call may run functions of
// the program that wait for other calls. Another thread runs those calls.
struct ShmHostsBackend::Runner : std::enable_shared_from_this<Runner> {
  explicit Runner(Parts of) : parts(std::move(of)) {}
  void start_thread();
  void run();
  std::exception_ptr error_of(Call& call) const;

  Parts parts;
  std::mutex mutex{};
  std::condition_variable changed{};
  std::deque<c10::intrusive_ptr<Call>> calls{};
  bool is_stopping = false;
  bool is_calling = false;  // a thread is running a call
  std::vector<std::thread> threads{};
  int usable_threads = 0;  // the threads that are not ending a call
};

const ShmHostsBackend::Parts& ShmHostsBackend::parts() const {
  return runner_->parts;
}

void ShmHostsBackend::setTimeout(std::chrono::milliseconds timeout) {
  runner_->parts.timeout = timeout;
  ForwardingBackend::setTimeout(timeout);
}

ShmHostsBackend::ShmHostsBackend(BackendPtr all, Parts parts)
    : ForwardingBackend(std::move(all)), runner_(std::make_shared<Runner>(std::move(parts))) {}

ShmHostsBackend::~ShmHostsBackend() {
  shutdown();
}

int ShmHostsBackend::place_of(int rank) const {
  const std::vector<int>& hosts = parts().hosts;
  return static_cast<int>(std::count(hosts.begin(), hosts.begin() + rank, hosts[static_cast<size_t>(rank)]));
}

ShmHostsBackend::WorkPtr ShmHostsBackend::queue(c10d::OpType type, const char* title, const Tensors& tensors,
                                                std::chrono::milliseconds timeout, std::vector<Step> steps) {
  auto call =
      c10::make_intrusive<Call>(rank_, type, title, tensors, timeout == c10d::kUnsetTimeout ? parts().timeout : timeout,
                                std::move(steps), ++number_, thread_call_purpose());
  const std::lock_guard lock(runner_->mutex);
  if (runner_->is_stopping) throw std::runtime_error("its group was closed");
  runner_->calls.push_back(call);
  if (runner_->usable_threads == 0) runner_->start_thread();
  runner_->changed.notify_all();
  return call;
}

// The caller must hold the mutex.
void ShmHostsBackend::Runner::start_thread() {
  threads.emplace_back([self = shared_from_this()] { self->run(); });
  ++usable_threads;
}

void ShmHostsBackend::Runner::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return calls.empty() ? is_stopping : !is_calling; });
    if (calls.empty()) return;
    auto call = std::move(calls.front());
    calls.pop_front();
    is_calling = true;
    lock.unlock();
    const std::exception_ptr error = error_of(*call);
    lock.lock();
    is_calling = false;
    --usable_threads;
    if (!calls.empty() && usable_threads == 0) start_thread();
    changed.notify_all();
    lock.unlock();
    call->end(error);
    call.reset();  // it may hold the group's last handle
    lock.lock();
    ++usable_threads;
  }
}

// After a failed step the other ranks would wait for this rank. So it aborts both groups, which notifies the other
// ranks.
std::exception_ptr ShmHostsBackend::Runner::error_of(Call& call) const {
  try {
    const CallPurposeScope intra_host_purpose(call.purpose());
    const BackendPurposeScope inter_host_purpose(dynamic_cast<PurposeBackend*>(parts.inter_host.get()), call.purpose());
    call.run();
    return nullptr;
  } catch (...) {
    const auto error = std::current_exception();
    if (parts.intra_host) parts.intra_host->abort();
    if (parts.inter_host) parts.inter_host->abort();
    return error;
  }
}

void ShmHostsBackend::abort() {
  if (parts().intra_host) parts().intra_host->abort();
  if (parts().inter_host) parts().inter_host->abort();
  ForwardingBackend::abort();
}

void ShmHostsBackend::shutdown() {
  bool is_in_thread = false;
  for (;;) {
    std::vector<std::thread> threads;
    {
      const std::lock_guard lock(runner_->mutex);
      runner_->is_stopping = true;
      runner_->changed.notify_all();
      threads = std::exchange(runner_->threads, {});
    }
    if (threads.empty()) break;
    for (std::thread& thread : threads) {
      if (thread.get_id() == std::this_thread::get_id()) {
        thread.detach();
        is_in_thread = true;
      } else {
        thread.join();
      }
    }
  }
  // The last handle was released at the end of a call, in that call's thread. This thread then finishes and releases
  // the parts.
  if (is_in_thread) return;
  if (parts().intra_host) parts().intra_host->shutdown();
  if (parts().inter_host) parts().inter_host->shutdown();
  ForwardingBackend::shutdown();
}

ShmHostsBackend::Step ShmHostsBackend::broadcast_intra_host(at::Tensor data, int place) {
  return [intra_host = parts().intra_host, data = std::move(data), place](std::chrono::milliseconds left) {
    if (!intra_host) return;
    Tensors tensors{data};
    c10d::BroadcastOptions options;
    options.rootRank = place;
    options.timeout = left;
    options.asyncOp = false;
    intra_host->broadcast(tensors, options)->wait();
  };
}

// Three steps: a sum within each host, the sum over the hosts, and a broadcast within each host.
ShmHostsBackend::WorkPtr ShmHostsBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  const at::Tensor tensor = only(tensors, "allreduce");
  ContiguousCopies copies;
  const at::Tensor data = copies.writable(tensor);
  // An operation that no rank supports is refused before any step begins.
  static_cast<void>(operator_of(options.reduceOp, real_numbers(tensor, options.reduceOp)));
  const bool is_average = options.reduceOp == c10d::ReduceOp::AVG;
  const c10d::ReduceOp op = is_average ? c10d::ReduceOp(c10d::ReduceOp::SUM) : options.reduceOp;
  const auto reduce_intra_host = [ranks = parts().intra_host, data, op](std::chrono::milliseconds left) {
    if (!ranks) return;
    Tensors one{data};
    c10d::ReduceOptions step_options;
    step_options.reduceOp = op;
    step_options.timeout = left;
    ranks->reduce(one, step_options)->wait();
  };
  const auto reduce_inter_host = [ranks = parts().inter_host, size = size_, data, op,
                                  is_average](std::chrono::milliseconds left) {
    if (!ranks) return;
    Tensors one{data};
    c10d::AllreduceOptions step_options;
    step_options.reduceOp = op;
    step_options.timeout = left;
    ranks->allreduce(one, step_options)->wait();
    if (is_average) one[0].detach().div_(size);
  };
  return queue(
      c10d::OpType::ALLREDUCE, "shm:all_reduce", tensors, options.timeout,
      {reduce_intra_host, reduce_inter_host, broadcast_intra_host(data, 0), [copies](auto) { copies.copy_back(); }});
}

// The root's host broadcasts first, so that its first rank has the values to send to the other hosts.
ShmHostsBackend::WorkPtr ShmHostsBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only(tensors, "broadcast");
  ContiguousCopies copies;
  const at::Tensor data = copies.writable(tensor);
  check_root(options.rootRank, size_, "broadcast");
  const auto root = static_cast<int>(options.rootRank);
  const int root_host = parts().hosts.at(static_cast<size_t>(root));
  std::vector<Step> steps;
  if (host() == root_host) steps.push_back(broadcast_intra_host(data, place_of(root)));
  steps.emplace_back([ranks = parts().inter_host, data, root_host](std::chrono::milliseconds left) {
    if (!ranks) return;
    Tensors one{data};
    c10d::BroadcastOptions step_options;
    step_options.rootRank = root_host;
    step_options.timeout = left;
    ranks->broadcast(one, step_options)->wait();
  });
  if (host() != root_host) steps.push_back(broadcast_intra_host(data, 0));
  steps.emplace_back([copies](auto) { copies.copy_back(); });
  return queue(c10d::OpType::BROADCAST, "shm:broadcast", tensors, options.timeout, std::move(steps));
}

ShmHostsBackend::WorkPtr ShmHostsBackend::barrier(const c10d::BarrierOptions& options) {
  const auto pass = [](const BackendPtr& ranks) {
    return [ranks](std::chrono::milliseconds left) {
      if (!ranks) return;
      c10d::BarrierOptions all;
      all.timeout = left;
      ranks->barrier(all)->wait();
    };
  };
  return queue(c10d::OpType::BARRIER, "shm:barrier", {}, options.timeout,
               {pass(parts().intra_host), pass(parts().inter_host), pass(parts().intra_host)});
}

}  // namespace ddp::detail
