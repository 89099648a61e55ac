#include "tests/support/device/communicator.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "comm/backends/backend_types.h"
#include "tests/support/device/caller.h"
#include "tests/support/device/collective_queue.h"
#include "tests/support/device/devices.h"
#include "tests/support/device/guard.h"
#include "tests/support/device/mutation.h"

namespace ddp::test::device {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Start = std::function<WorkPtr()>;

class QueuedWork final : public c10d::Work {
 public:
  QueuedWork(std::shared_ptr<CollectiveQueue> queue, std::shared_ptr<Queued> queued, Tensors outputs, bool is_barrier)
      : queue_(std::move(queue)), queued_(std::move(queued)), outputs_(std::move(outputs)), is_barrier_(is_barrier) {
    const c10::StreamGuard on(queued_->stream);
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       std::vector<c10::Device>{queued_->stream.device()});
    future_->markCompleted(c10::IValue(outputs_));  // with an event of this stream
  }

  bool wait(std::chrono::milliseconds timeout) override {
    queue_->rethrow();
    synchronize();
    if (is_barrier_ || timeout != kNoTimeout) {
      devices().ledger.host_waits(is_barrier_ ? "barrier" : "wait() with a timeout");
      devices().engine.synchronize(queued_->end);
      queue_->rethrow();
    }
    return true;
  }
  void synchronize() override {
    if (!mutation::is_left_out(mutation::Act::kWait)) {
      const c10::Stream here = current_stream(queued_->stream.device_index());
      devices().books.block(queued_.get(), here);
      devices().engine.wait(key_of(here), queued_->end);
    }
    queued_->held.clear();
  }
  bool isCompleted() override { return devices().engine.is_reached(queued_->end); }
  bool isSuccess() const override { return true; }
  Tensors result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  const std::shared_ptr<CollectiveQueue> queue_;
  const std::shared_ptr<Queued> queued_;
  const Tensors outputs_;
  const bool is_barrier_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Truth values travel as bytes, of which the largest is their sum.
at::Tensor as_numbers(const at::Tensor& real) {
  return real.scalar_type() == at::kBool ? real.view(at::kByte) : real;
}

c10d::ReduceOp as_known(const c10d::ReduceOp& op, const at::Tensor& tensor) {
  if (op == c10d::ReduceOp::AVG) return c10d::ReduceOp::SUM;
  return tensor.scalar_type() == at::kBool && op == c10d::ReduceOp::SUM ? c10d::ReduceOp(c10d::ReduceOp::MAX) : op;
}

Tensors for_kernels(const Tensors& tensors) {
  Tensors real;
  for (const at::Tensor& tensor : tensors) real.push_back(as_numbers(for_kernel(tensor)));
  return real;
}

std::vector<Tensors> for_kernels(const std::vector<Tensors>& lists) {
  std::vector<Tensors> real;
  for (const Tensors& list : lists) real.push_back(for_kernels(list));
  return real;
}

class Communicator final : public c10d::Backend {
 public:
  Communicator(c10::intrusive_ptr<c10d::Backend> inner, c10::Device device, bool is_in_process)
      : Backend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        device_(device),
        is_in_process_(is_in_process),
        stream_(guard().getNewStream(device, 0)) {}

  ~Communicator() override {
    if (!has_ended_) abort();
    queue_->stop();
    for (const auto& [peer, pair] : pairs_) pair.queue->stop();
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string getBackendName() const override { return "nccl"; }
  bool supportsCoalescing() const override { return true; }
  void eagerConnectSingleDevice(at::Device /*device*/) override {}
  void setSequenceNumberForGroup() override {}

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    auto inner = options;
    inner.reduceOp = as_known(options.reduceOp, tensors.at(0));
    return queue(
        "all_reduce", tensors, tensors, options.asyncOp,
        [this, real = for_kernels(tensors), inner]() mutable { return inner_->allreduce(real, inner); },
        averager(options.reduceOp, tensors));
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    auto inner = options;
    inner.reduceOp = as_known(options.reduceOp, tensors.at(0));
    return queue(
        "all_reduce_coalesced", tensors, tensors, options.asyncOp,
        [this, real = for_kernels(tensors), inner]() mutable -> WorkPtr {
          for (at::Tensor& tensor : real) {
            Tensors one{tensor};
            inner_->allreduce(one, inner)->wait();
          }
          return nullptr;
        },
        averager(options.reduceOp, tensors));
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const Tensors read = options.rootRank == getRank() ? tensors : Tensors{};
    const Tensors written = options.rootRank == getRank() ? Tensors{} : tensors;
    return queue(
        "broadcast", read, written, options.asyncOp,
        [this, real = for_kernels(tensors), options]() mutable { return inner_->broadcast(real, options); }, {},
        tensors);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    auto inner = options;
    inner.reduceOp = as_known(options.reduceOp, tensors.at(0));
    return queue(
        "reduce", tensors, tensors, options.asyncOp,
        [this, real = for_kernels(tensors), inner]() mutable { return inner_->reduce(real, inner); },
        averager(options.reduceOp, tensors));
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    return queue("all_gather", {input}, {output}, options.asyncOp,
                 [this, real = for_kernels(Tensors{output, input}), options]() mutable {
                   return inner_->_allgather_base(real[0], real[1], options);
                 });
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    return queue("all_gather_coalesced", inputs, outputs, options.asyncOp,
                 [this, to = for_kernels(outputs), from = for_kernels(inputs), options]() mutable {
                   return inner_->allgather_into_tensor_coalesced(to, from, options);
                 });
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return queue("all_gather", inputs, outputs.at(0), options.asyncOp,
                 [this, lists = for_kernels(outputs), real = for_kernels(inputs), options]() mutable {
                   return inner_->allgather(lists, real, options);
                 });
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    return queue("gather", inputs, outputs.empty() ? Tensors{} : outputs[0], options.asyncOp,
                 [this, lists = for_kernels(outputs), real = for_kernels(inputs), options]() mutable {
                   return inner_->gather(lists, real, options);
                 });
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override {
    return queue("scatter", inputs.empty() ? Tensors{} : inputs[0], outputs, options.asyncOp,
                 [this, lists = for_kernels(inputs), real = for_kernels(outputs), options]() mutable {
                   return inner_->scatter(real, lists, options);
                 });
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    auto inner = options;
    inner.reduceOp = as_known(options.reduceOp, input);
    return queue(
        "reduce_scatter", {input}, {output}, options.asyncOp,
        [this, real = for_kernels(Tensors{output, input}), inner]() mutable {
          return inner_->_reduce_scatter_base(real[0], real[1], inner);
        },
        averager(options.reduceOp, {output}));
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    auto inner = options;
    inner.reduceOp = as_known(options.reduceOp, inputs.at(0));
    return queue(
        "reduce_scatter_coalesced", inputs, outputs, options.asyncOp,
        [this, to = for_kernels(outputs), from = for_kernels(inputs), inner]() mutable {
          return inner_->reduce_scatter_tensor_coalesced(to, from, inner);
        },
        averager(options.reduceOp, outputs));
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    return queue("all_to_all", {input}, {output}, options.asyncOp,
                 [this, real = for_kernels(Tensors{output, input}), output_splits, input_splits, options]() mutable {
                   return inner_->alltoall_base(real[0], real[1], output_splits, input_splits, options);
                 });
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    const c10::DeviceGuard on(device_);
    Tensors nothing{at::zeros({1}, at::TensorOptions(device_))};
    is_barrier_ = true;
    auto work = queue("barrier", nothing, nothing, options.asyncOp,
                      [this, real = for_kernels(nothing)]() mutable { return inner_->allreduce(real, {}); });
    is_barrier_ = false;
    return work;
  }

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return message(tensors, to, false,
                   [this, real = for_kernels(tensors), to, tag]() mutable { return inner_->send(real, to, tag); });
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return message(tensors, from, true,
                   [this, real = for_kernels(tensors), from, tag]() mutable { return inner_->recv(real, from, tag); });
  }
  void startCoalescing() override { is_coalescing_ = true; }
  WorkPtr endCoalescing() override {
    is_coalescing_ = false;
    Tensors read = std::exchange(sent_, {});
    Tensors written = std::exchange(received_, {});
    return queue("messages", read, written, true, [starts = std::exchange(messages_, {})]() -> WorkPtr {
      std::vector<WorkPtr> works;
      for (const Start& start : starts) works.push_back(start());
      for (const WorkPtr& work : works) work->wait();
      return nullptr;
    });
  }

  void abort() override {
    has_ended_ = true;
    queue_->fail("the communicator was aborted");
    for (const auto& [peer, pair] : pairs_) pair.queue->fail("the communicator was aborted");
    inner_->abort();
  }
  void shutdown() override {
    has_ended_ = true;
    queue_->drain();
    if (const auto error = queue_->unsaid()) watchdog(error);
    for (const auto& [peer, pair] : pairs_) {
      pair.queue->drain();
      if (const auto error = pair.queue->unsaid()) watchdog(error);
    }
    inner_->shutdown();
  }

 private:
  // Each works on a stream of its own. NCCL has one for all ranks and one for each pair that exchanges messages.
  struct Line {
    c10::Stream stream;
    std::shared_ptr<CollectiveQueue> queue = std::make_shared<CollectiveQueue>();
  };

  // What nobody has been told by a call is said by NCCL's watchdog, which ends the process.
  void watchdog(const std::exception_ptr& error) const {
    if (is_in_process_) std::rethrow_exception(error);
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& caught) {
      std::fprintf(stderr, "rank %d of %d: the watchdog ends this process: %s\n", getRank(), getSize(), caught.what());
    }
    std::abort();
  }

  WorkPtr message(const Tensors& tensors, int peer, bool written, Start start) {
    if (!is_coalescing_) {
      const Tensors none;
      const auto pair = pairs_.try_emplace(peer, Line{.stream = guard().getNewStream(device_, 0)}).first;
      return queue_on(pair->second, written ? "recv" : "send", written ? none : tensors, written ? tensors : none, true,
                      std::move(start));
    }
    auto& list = written ? received_ : sent_;
    list.insert(list.end(), tensors.begin(), tensors.end());
    messages_.push_back(std::move(start));
    return nullptr;
  }

  std::function<void()> averager(const c10d::ReduceOp& op, const Tensors& tensors) const {
    if (op != c10d::ReduceOp::AVG) return {};
    return [real = for_kernels(tensors), size = getSize()] {
      for (const at::Tensor& tensor : real) tensor.div_(size);
    };
  }

  WorkPtr queue(const std::string& name, const Tensors& read, const Tensors& written, bool async, Start start,
                std::function<void()> after = {}, const Tensors& outputs = {}) {
    return queue_on({.stream = stream_, .queue = queue_}, name, read, written, async, std::move(start),
                    std::move(after), outputs);
  }

  WorkPtr queue_on(const Line& line, const std::string& name, const Tensors& read, const Tensors& written, bool async,
                   Start start, std::function<void()> after = {}, const Tensors& outputs = {}) {
    const Caller one(callers_);
    if (!one.is_alone()) {
      devices().ledger.fault(name + " of a communicator that another thread is using, by " + caller());
    }
    const std::lock_guard in_some_order(calls_);
    line.queue->rethrow();
    const c10::Stream here = current_stream(device_.index());
    const c10::Stream stream = async ? line.stream : here;
    follow(stream, here);
    std::vector<Use> uses;
    Tensors all;
    for (const at::Tensor& tensor : read) uses.push_back({.tensor = tensor});
    for (const at::Tensor& tensor : written) uses.push_back({.tensor = tensor, .is_written = true});
    for (const Use& use : uses) all.push_back(use.tensor);
    if (one_device(all, name) != device_ && !all.empty()) {
      devices().ledger.wrong_device(name + " of a communicator of " + device_.str() + " got tensors of another device");
      throw std::invalid_argument(name + ": the communicator is of " + device_.str());
    }
    const auto queued = line.queue->add(stream, uses, name, [start = std::move(start), after = std::move(after)] {
      if (const WorkPtr work = start()) work->wait();
      if (after) after();
    });
    if (!async) {
      queued->held.clear();
      return nullptr;
    }
    return c10::make_intrusive<QueuedWork>(line.queue, queued, outputs.empty() ? written : outputs, is_barrier_);
  }

  // Of NCCL's communicators each is for one thread at a time.
  class Caller {
   public:
    explicit Caller(std::atomic<int>& callers) : callers_(callers), is_alone_(callers++ == 0) {}
    ~Caller() { --callers_; }
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;
    bool is_alone() const { return is_alone_; }

   private:
    std::atomic<int>& callers_;
    const bool is_alone_;
  };

  const c10::intrusive_ptr<c10d::Backend> inner_;
  const c10::Device device_;
  const bool is_in_process_;
  const c10::Stream stream_;
  std::atomic<int> callers_{0};
  std::mutex calls_;
  bool has_ended_ = false;
  bool is_barrier_ = false;
  bool is_coalescing_ = false;
  Tensors sent_;
  Tensors received_;
  std::vector<Start> messages_;
  std::map<int, Line> pairs_;  // by the other rank
  const std::shared_ptr<CollectiveQueue> queue_ = std::make_shared<CollectiveQueue>();
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_communicator(const detail::GroupPlan& plan,
                                                    const c10::intrusive_ptr<c10d::Store>& store) {
  detail::GroupPlan between_hosts = plan;
  between_hosts.device = c10::Device(c10::kCPU);
  const BackendList known = detail::known_backends();
  const auto shm = std::ranges::find(known, "shm", [](const BackendTraits* traits) { return traits->name; });
  return c10::make_intrusive<Communicator>(detail::type_of(**shm).make(between_hosts, store), plan.device,
                                           plan.in_process);
}

}  // namespace ddp::test::device
