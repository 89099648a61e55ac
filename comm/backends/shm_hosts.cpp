#include "comm/backends/shm_hosts.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "comm/backends/shm_tensors.h"

namespace ddp::detail {

// One that was called; ended by the thread that does it.
class ShmHostsBackend::Call final : public c10d::Work {
 public:
  Call(int rank, c10d::OpType type, const char* title, Tensors tensors, std::chrono::milliseconds timeout,
       std::vector<Step> steps, uint64_t number)
      : Work(rank, type, title, tensors),
        tensors_(std::move(tensors)),
        timeout_(timeout),
        steps_(std::move(steps)),
        number_(number),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

  // A step has what those before it have left of the time.
  void run() {
    using Clock = std::chrono::steady_clock;
    const at::NoGradGuard no_grad;
    const auto deadline = Clock::now() + timeout_;
    for (const Step& step : steps_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      step(std::max(left, std::chrono::milliseconds(1)));
    }
  }

  void end(std::exception_ptr error) {
    steps_.clear();
    finish(error);
    if (error) {
      future_->setError(error);
    } else {
      future_->markCompleted(c10::IValue(tensors_));
    }
  }

  std::vector<at::Tensor> result() override { return tensors_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return number_; }

 private:
  const Tensors tensors_;
  const std::chrono::milliseconds timeout_;
  std::vector<Step> steps_;
  const uint64_t number_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

ShmHostsBackend::ShmHostsBackend(int rank, int size, Parts parts)
    : Backend(rank, size), parts_(std::move(parts)), thread_([this] { run_thread(); }) {}

ShmHostsBackend::~ShmHostsBackend() {
  shutdown();
}

int ShmHostsBackend::place_of(int rank) const {
  const auto begin = parts_.hosts.begin();
  return static_cast<int>(std::count(begin, begin + rank, parts_.hosts[static_cast<size_t>(rank)]));
}

ShmHostsBackend::WorkPtr ShmHostsBackend::queue(c10d::OpType type, const char* title, const Tensors& tensors,
                                                std::chrono::milliseconds timeout, std::vector<Step> steps) {
  auto call =
      c10::make_intrusive<Call>(rank_, type, title, tensors, timeout == c10d::kUnsetTimeout ? parts_.timeout : timeout,
                                std::move(steps), ++number_);
  const std::lock_guard lock(mutex_);
  if (is_stopping_) throw std::runtime_error("its group was closed");
  calls_.push_back(call);
  changed_.notify_one();
  return call;
}

void ShmHostsBackend::run_thread() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_stopping_ || !calls_.empty(); });
    if (calls_.empty()) return;
    const auto call = calls_.front();
    calls_.pop_front();
    lock.unlock();
    run(*call);
    lock.lock();
  }
}

// Where a step has failed the others would wait for this rank: it takes leave of them, which tells them at once.
void ShmHostsBackend::run(Call& call) {
  try {
    call.run();
  } catch (...) {
    const auto error = std::current_exception();
    if (parts_.inside) parts_.inside->abort();
    if (parts_.between) parts_.between->abort();
    call.end(error);
    return;
  }
  call.end(nullptr);
}

void ShmHostsBackend::abort() {
  if (parts_.inside) parts_.inside->abort();
  if (parts_.between) parts_.between->abort();
  parts_.all->abort();
}

void ShmHostsBackend::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
  if (parts_.inside) parts_.inside->shutdown();
  if (parts_.between) parts_.between->shutdown();
  parts_.all->shutdown();
}

ShmHostsBackend::Step ShmHostsBackend::broadcast_inside(at::Tensor data, int place) {
  return [this, data = std::move(data), place](std::chrono::milliseconds left) {
    if (!parts_.inside) return;
    Tensors tensors{data};
    c10d::BroadcastOptions options;
    options.rootRank = place;
    options.timeout = left;
    options.asyncOp = false;
    parts_.inside->broadcast(tensors, options)->wait();
  };
}

// A sum per host, the sum of those, and back.
ShmHostsBackend::WorkPtr ShmHostsBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  const at::Tensor tensor = only(tensors, "allreduce");
  Stand stand;
  const at::Tensor data = stand.out(tensor);
  const bool is_average = options.reduceOp == c10d::ReduceOp::AVG;
  const c10d::ReduceOp op = is_average ? c10d::ReduceOp(c10d::ReduceOp::SUM) : options.reduceOp;
  const auto reduce_inside = [this, data, op](std::chrono::milliseconds left) {
    if (!parts_.inside) return;
    Tensors one{data};
    c10d::ReduceOptions inside;
    inside.reduceOp = op;
    inside.timeout = left;
    parts_.inside->reduce(one, inside)->wait();
  };
  const auto reduce_between = [this, data, op, is_average](std::chrono::milliseconds left) {
    if (!parts_.between) return;
    Tensors one{data};
    c10d::AllreduceOptions between;
    between.reduceOp = op;
    between.timeout = left;
    parts_.between->allreduce(one, between)->wait();
    if (is_average) one[0].detach().div_(size_);
  };
  return queue(c10d::OpType::ALLREDUCE, "shm:all_reduce", tensors, options.timeout,
               {reduce_inside, reduce_between, broadcast_inside(data, 0), [stand](auto) { stand.copy_back(); }});
}

// The root's host first, so that its first rank has what the other hosts get from it.
ShmHostsBackend::WorkPtr ShmHostsBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only(tensors, "broadcast");
  Stand stand;
  const at::Tensor data = stand.out(tensor);
  const auto root = static_cast<int>(options.rootRank);
  const int root_host = parts_.hosts.at(static_cast<size_t>(root));
  std::vector<Step> steps;
  if (host() == root_host) steps.push_back(broadcast_inside(data, place_of(root)));
  steps.emplace_back([this, data, root_host](std::chrono::milliseconds left) {
    if (!parts_.between) return;
    Tensors one{data};
    c10d::BroadcastOptions between;
    between.rootRank = root_host;
    between.timeout = left;
    parts_.between->broadcast(one, between)->wait();
  });
  if (host() != root_host) steps.push_back(broadcast_inside(data, 0));
  steps.emplace_back([stand](auto) { stand.copy_back(); });
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
               {pass(parts_.inside), pass(parts_.between), pass(parts_.inside)});
}

}  // namespace ddp::detail
