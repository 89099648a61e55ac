// A backend of a test's own, in one file: gloo, and a count of what it was asked for. A program that registers it,
//
//     detail::register_backend(test::counting_backend("counting", calls));
//
// may name it wherever it may name gloo.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "comm/backends/backend_types.h"
#include "comm/backends/gloo.h"

namespace ddp::test {

class CountingBackend final : public c10d::Backend {
 public:
  using Count = std::shared_ptr<std::atomic<int>>;

  CountingBackend(std::string name, c10::intrusive_ptr<c10d::Backend> inner, Count calls)
      : Backend(inner->getRank(), inner->getSize()),
        name_(std::move(name)),
        inner_(std::move(inner)),
        calls_(std::move(calls)) {}

  const std::string getBackendName() const override { return name_; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    return counted(inner_->allreduce(tensors, options));
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return counted(inner_->broadcast(tensors, options));
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override {
    return counted(inner_->_allgather_base(output, input, options));
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override {
    return counted(inner_->barrier(options));
  }

 private:
  c10::intrusive_ptr<c10d::Work> counted(c10::intrusive_ptr<c10d::Work> work) {
    ++*calls_;
    return work;
  }

  const std::string name_;
  const c10::intrusive_ptr<c10d::Backend> inner_;
  const Count calls_;
};

/// `calls` counts the collectives of all ranks of this process.
inline detail::BackendType counting_backend(const std::string& name, const CountingBackend::Count& calls) {
  return {.traits = {.name = name, .serves_cpu = true, .serves_cuda = true},
          .make = [=](const detail::GroupPlan& plan, const c10::intrusive_ptr<c10d::Store>& store) {
            return c10::make_intrusive<CountingBackend>(name, detail::make_gloo(plan, store), calls);
          }};
}

}  // namespace ddp::test
