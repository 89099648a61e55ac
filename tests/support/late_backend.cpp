#include "tests/support/late_backend.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "comm/backends/gloo.h"

namespace ddp::test {
namespace {

constexpr int kPoison = 0xFF;
constexpr auto kDelay = std::chrono::milliseconds(2);

// The caller's tensor and the copy that the inner backend works on. `visible` gets the result when the collective has
// ended; until then it is poisoned if the collective writes to it, and holds the input otherwise.
struct Buffer {
  at::Tensor visible;
  at::Tensor real;
  bool written;
};

void poison(const at::Tensor& tensor) {
  if (tensor.numel() > 0) std::memset(tensor.data_ptr(), kPoison, tensor.nbytes());
}

bool is_poisoned(const at::Tensor& tensor) {
  const auto* bytes = static_cast<const unsigned char*>(tensor.data_ptr());
  return std::all_of(bytes, bytes + tensor.nbytes(), [](unsigned char byte) { return byte == kPoison; });
}

bool is_untouched(const Buffer& buffer) {
  if (buffer.written) return is_poisoned(buffer.visible);
  return std::memcmp(buffer.visible.data_ptr(), buffer.real.data_ptr(), buffer.visible.nbytes()) == 0;
}

void deliver(const Buffer& buffer) {
  if (buffer.visible.numel() == 0) return;
  if (!is_untouched(buffer)) {
    throw std::runtime_error("a buffer was written to while its collective was in flight");
  }
  std::memcpy(buffer.visible.data_ptr(), buffer.real.data_ptr(), buffer.visible.nbytes());
}

class LateWork final : public c10d::Work {
 public:
  LateWork() : future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

  // The thread may outlive this: whoever keeps the future only must not wait for the result by dropping the Work.
  std::thread finish_late(c10::intrusive_ptr<c10d::Work> inner, std::vector<Buffer> buffers,
                          std::vector<at::Tensor> outputs) {
    return std::thread([future = future_, inner = std::move(inner), buffers = std::move(buffers),
                        outputs = std::move(outputs)]() mutable {
      try {
        inner->wait();
        std::this_thread::sleep_for(kDelay);
        for (const Buffer& buffer : buffers) deliver(buffer);
        future->markCompleted(c10::IValue(outputs));
      } catch (...) {
        future->setError(std::current_exception());
      }
    });
  }
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    future_->waitAndThrow();
    return true;
  }
  bool isCompleted() override { return future_->completed(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class LateBackend final : public c10d::Backend {
 public:
  explicit LateBackend(c10::intrusive_ptr<c10d::Backend> inner)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}
  ~LateBackend() override {
    for (std::thread& thread : threads_) thread.join();
  }

  const std::string getBackendName() const override { return "late"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    return late(tensors, true, options.asyncOp,
                [&](std::vector<at::Tensor>& real) { return inner_->allreduce(real, options); });
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return late(tensors, options.rootRank != getRank(), options.asyncOp,
                [&](std::vector<at::Tensor>& real) { return inner_->broadcast(real, options); });
  }
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override {
    return late(tensors, true, options.asyncOp,
                [&](std::vector<at::Tensor>& real) { return inner_->reduce(real, options); });
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override {
    std::vector<at::Tensor> outputs{output};
    return late(outputs, true, options.asyncOp, [&](std::vector<at::Tensor>& real) {
      at::Tensor copy = input.clone();
      return inner_->_allgather_base(real[0], copy, options);
    });
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override {
    return late(outputs.at(0), true, options.asyncOp, [&](std::vector<at::Tensor>& real) {
      std::vector<std::vector<at::Tensor>> lists{real};
      std::vector<at::Tensor> copy{inputs.at(0).clone()};
      return inner_->allgather(lists, copy, options);
    });
  }
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options) override {
    std::vector<at::Tensor> none;
    return late(outputs.empty() ? none : outputs[0], true, options.asyncOp, [&](std::vector<at::Tensor>& real) {
      std::vector<std::vector<at::Tensor>> lists;
      if (!outputs.empty()) lists.push_back(real);
      std::vector<at::Tensor> copy{inputs.at(0).clone()};
      return inner_->gather(lists, copy, options);
    });
  }
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options) override {
    return late(outputs, true, options.asyncOp, [&](std::vector<at::Tensor>& real) {
      std::vector<std::vector<at::Tensor>> lists = inputs;
      return inner_->scatter(real, lists, options);
    });
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override {
    std::vector<at::Tensor> outputs{output};
    return late(outputs, true, options.asyncOp, [&](std::vector<at::Tensor>& real) {
      at::Tensor copy = input.clone();
      return inner_->_reduce_scatter_base(real[0], copy, options);
    });
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                               const c10d::AllToAllOptions& options) override {
    std::vector<at::Tensor> outputs{output};
    return late(outputs, true, options.asyncOp, [&](std::vector<at::Tensor>& real) {
      at::Tensor copy = input.clone();
      return inner_->alltoall_base(real[0], copy, output_splits, input_splits, options);
    });
  }
  // Always asynchronous, as on NCCL.
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    return late(tensors, false, true, [&](std::vector<at::Tensor>& real) { return inner_->send(real, to, tag); });
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    return late(tensors, true, true, [&](std::vector<at::Tensor>& real) { return inner_->recv(real, from, tag); });
  }
  c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor>& tensors, int tag) override {
    return inner_->recvAnysource(tensors, tag);
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override {
    return inner_->barrier(options);
  }

 private:
  template <typename Start>
  c10::intrusive_ptr<c10d::Work> late(std::vector<at::Tensor>& tensors, bool written, bool async, Start start) {
    if (!async) {  // NCCL runs these on the caller's stream: the result is there for whatever comes next
      start(tensors)->wait();
      return nullptr;
    }
    const at::NoGradGuard no_grad;
    if (!tensors.empty() && tensors[0].is_sparse()) return start(tensors);
    std::vector<at::Tensor> real;
    std::vector<Buffer> buffers;
    for (at::Tensor& tensor : tensors) {
      if (!tensor.is_non_overlapping_and_dense()) throw std::invalid_argument("late backend: a tensor has gaps");
      real.push_back(tensor.detach().clone());
      buffers.push_back({.visible = tensor.detach(), .real = real.back(), .written = written});
      if (written) poison(tensor);
    }
    auto inner = start(real);
    auto work = c10::make_intrusive<LateWork>();
    const std::lock_guard lock(mutex_);
    threads_.push_back(work->finish_late(std::move(inner), std::move(buffers), tensors));
    return work;
  }

  c10::intrusive_ptr<c10d::Backend> inner_;
  std::mutex mutex_;
  std::vector<std::thread> threads_;
};

}  // namespace

detail::BackendType late_backend() {
  return {.traits = {.name = "late", .serves_cpu = true, .receives_from_any = true, .dtypes = detail::gloo_dtypes()},
          .make = [](const detail::GroupPlan& plan, const auto& store) {
            return c10::make_intrusive<LateBackend>(detail::make_gloo(plan, store));
          }};
}

}  // namespace ddp::test
