// The backend of a group of one process. Every collective is the identity and no socket is opened.
#include <algorithm>

#include "comm/backends/backend_types.h"

namespace ddp::detail {
namespace {

// A Work that has already ended with `result`, whose future carries the devices of the tensors, as Reducer expects.
c10::intrusive_ptr<c10d::Work> finished_work(const std::vector<at::Tensor>& result) {
  std::vector<c10::Device> devices;
  for (const at::Tensor& tensor : result) {
    if (!tensor.is_cpu()) devices.push_back(tensor.device());
  }
  std::sort(devices.begin(), devices.end(), [](c10::Device a, c10::Device b) { return a.index() < b.index(); });
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  auto future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::move(devices));
  future->markCompleted(c10::IValue(result));
  return c10d::Work::create_from_future(future);
}

class LocalBackend final : public c10d::Backend {
 public:
  LocalBackend() : Backend(0, 1) {}

  const std::string getBackendName() const override { return "local"; }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions&) override {
    return finished_work(tensors);
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions&) override {
    return finished_work(tensors);
  }
  c10::intrusive_ptr<c10d::Work> allreduce_sparse(std::vector<at::Tensor>& tensors,
                                                  const c10d::AllreduceOptions&) override {
    return finished_work(tensors);
  }
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions&) override {
    return finished_work(tensors);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs, const c10d::AllgatherOptions&) override {
    for (size_t i = 0; i < inputs.size(); ++i) outputs.at(i).at(0).copy_(inputs[i]);
    return finished_work(inputs);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions&) override {
    output.view(input.sizes()).copy_(input);
    return finished_work({output});
  }
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions&) override {
    outputs.at(0).at(0).copy_(inputs.at(0));
    return finished_work(outputs[0]);
  }
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions&) override {
    outputs.at(0).copy_(inputs.at(0).at(0));
    return finished_work(outputs);
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions&) override {
    output.copy_(input);
    return finished_work({output});
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>&,
                                               std::vector<int64_t>&, const c10d::AllToAllOptions&) override {
    output.copy_(input);
    return finished_work({output});
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override { return finished_work({}); }
};

}  // namespace

BackendType local_backend() {
  return {
      .traits = {.name = "local", .serves_cpu = true, .serves_cuda = true, .for_one_rank = true, .wait_blocks = false},
      .make = [](const GroupPlan&, const auto&) { return c10::make_intrusive<LocalBackend>(); }};
}

}  // namespace ddp::detail
