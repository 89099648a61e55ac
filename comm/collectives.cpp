#include "comm/collectives.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "comm/absent_ranks.h"
#include "comm/group_state.h"
#include "comm/store.h"

namespace ddp {
namespace {

using detail::absent_ranks;
using detail::GroupState;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// NCCL returns no Work at all for synchronous calls; gloo always returns one.
void finish(const WorkPtr& work) {
  if (work) work->wait();
}

std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.scalar_type() << " tensor of shape " << tensor.sizes() << " on " << tensor.device();
  return text.str();
}

template <typename Start>
void run(const char* operation, const GroupHandle& group, const std::string& subject, Start start) {
  GroupState& state = group.state();
  const auto c10d_group = state.group(operation);
  const uint64_t number = state.next_operation();
  const at::NoGradGuard no_grad;
  try {
    finish(start(*c10d_group));
  } catch (const std::exception& error) {
    throw std::runtime_error(who(state.info()) + ": " + operation + " (number " + std::to_string(number) + ") of a " +
                             subject + " failed: " + detail::brief(error) + absent_ranks(state, number));
  }
}

[[noreturn]] void refuse(const GroupHandle& group, const char* operation, const std::string& why) {
  throw std::invalid_argument(who(group.info()) + ": " + operation + ": " + why);
}

void check_tensor(const at::Tensor& tensor, const GroupHandle& group, const char* operation) {
  if (!tensor.defined()) refuse(group, operation, "the tensor is undefined");
  if (tensor.layout() != at::kStrided) refuse(group, operation, "expected a dense tensor, got a " + describe(tensor));
  if (!tensor.is_contiguous()) {
    refuse(group, operation,
           "expected a contiguous tensor, got strides in a " + describe(tensor) + ": pass .contiguous()");
  }
  const BackendMap& backends = group.state().backends();
  if ((tensor.is_cpu() ? backends.cpu : backends.cuda).empty()) {
    refuse(group, operation, "backend '" + backends.text() + "' does not serve a " + describe(tensor));
  }
}

void check_root(int root, const GroupHandle& group, const char* operation) {
  if (root < 0 || root >= group.size()) {
    refuse(group, operation,
           "root " + std::to_string(root) + " is not a rank: expected 0 to " + std::to_string(group.size() - 1));
  }
}

c10d::ReduceOp::RedOpType reduce_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kAvg:
      return c10d::ReduceOp::AVG;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
  }
  throw std::invalid_argument("unknown ReduceOp");
}

template <typename C10dOptions>
C10dOptions synchronous(const CollectiveOptions& options) {
  C10dOptions result;
  result.asyncOp = false;
  if (options.timeout) result.timeout = *options.timeout;
  return result;
}

// Where small host values travel: a CPU backend if there is one, else the rank's GPU.
c10::Device host_value_device(const GroupHandle& group) {
  return group.state().backends().cpu.empty() ? group.device() : c10::Device(c10::kCPU);
}

}  // namespace

void all_reduce(at::Tensor tensor, const GroupHandle& group, ReduceOp op, const CollectiveOptions& options) {
  check_tensor(tensor, group, "all_reduce");
  auto settings = synchronous<c10d::AllreduceOptions>(options);
  settings.reduceOp = reduce_op(op);
  std::vector<at::Tensor> tensors{tensor};
  run("all_reduce", group, describe(tensor),
      [&](c10d::ProcessGroup& c10d) { return c10d.allreduce(tensors, settings); });
}

void reduce(at::Tensor tensor, int root, const GroupHandle& group, ReduceOp op, const CollectiveOptions& options) {
  check_tensor(tensor, group, "reduce");
  check_root(root, group, "reduce");
  auto settings = synchronous<c10d::ReduceOptions>(options);
  settings.reduceOp = reduce_op(op);
  settings.rootRank = root;
  std::vector<at::Tensor> tensors{tensor};
  run("reduce", group, describe(tensor), [&](c10d::ProcessGroup& c10d) { return c10d.reduce(tensors, settings); });
}

void broadcast(at::Tensor tensor, int root, const GroupHandle& group, const CollectiveOptions& options) {
  check_tensor(tensor, group, "broadcast");
  check_root(root, group, "broadcast");
  auto settings = synchronous<c10d::BroadcastOptions>(options);
  settings.rootRank = root;
  std::vector<at::Tensor> tensors{tensor};
  run("broadcast", group, describe(tensor),
      [&](c10d::ProcessGroup& c10d) { return c10d.broadcast(tensors, settings); });
}

void broadcast_coalesced(const std::vector<at::Tensor>& tensors, int root, const GroupHandle& group,
                         int64_t buffer_bytes) {
  check_root(root, group, "broadcast_coalesced");
  if (tensors.empty()) return;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) refuse(group, "broadcast_coalesced", "a tensor is undefined");
  }
  GroupState& state = group.state();
  run("broadcast", group, "list of " + std::to_string(tensors.size()) + " tensors", [&](c10d::ProcessGroup&) {
    c10d::broadcast_coalesced(state.group("broadcast"), tensors, static_cast<size_t>(buffer_bytes), root);
    return WorkPtr();
  });
}

at::Tensor all_gather(const at::Tensor& tensor, const GroupHandle& group, const CollectiveOptions& options) {
  check_tensor(tensor, group, "all_gather");
  std::vector<int64_t> shape{group.size()};
  shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
  at::Tensor input = tensor.detach();
  at::Tensor output = at::empty(shape, input.options());
  if (output.numel() == 0) return output;
  const auto settings = synchronous<c10d::AllgatherOptions>(options);
  // Backends take both as flat lists of the group's size times the input.
  at::Tensor flat_input = input.view({-1});
  at::Tensor flat_output = output.view({-1});
  run("all_gather", group, describe(tensor),
      [&](c10d::ProcessGroup& c10d) { return c10d._allgather_base(flat_output, flat_input, settings); });
  return output;
}

void barrier(const GroupHandle& group, const CollectiveOptions& options) {
  c10d::BarrierOptions settings;  // stays asynchronous: only then does NCCL's wait() block the host
  if (options.timeout) settings.timeout = *options.timeout;
  const bool on_cpu = !group.state().backends().cpu.empty();
  if (!on_cpu) settings.device = group.device();
  run("barrier", group, "group of " + std::to_string(group.size()),
      [&](c10d::ProcessGroup& c10d) { return c10d.getBackend(on_cpu ? c10::kCPU : c10::kCUDA)->barrier(settings); });
}

std::vector<std::string> all_gather_strings(const std::string& text, const GroupHandle& group) {
  const c10::Device device = host_value_device(group);
  const auto count = at::tensor({static_cast<int64_t>(text.size())}, at::kLong).to(device);
  const at::Tensor counts = all_gather(count, group).cpu().view({-1});
  const int64_t longest = counts.max().item<int64_t>();
  std::vector<std::string> texts(static_cast<size_t>(group.size()));
  if (longest == 0) return texts;

  at::Tensor padded = at::zeros({longest}, at::kByte);
  std::memcpy(padded.data_ptr<uint8_t>(), text.data(), text.size());
  const at::Tensor all = all_gather(padded.to(device), group).cpu();
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    const char* begin = reinterpret_cast<const char*>(all.data_ptr<uint8_t>()) + rank * longest;
    texts[static_cast<size_t>(rank)].assign(begin, static_cast<size_t>(counts.data_ptr<int64_t>()[rank]));
  }
  return texts;
}

std::string broadcast_string(const std::string& text, int root, const GroupHandle& group) {
  check_root(root, group, "broadcast_string");
  const c10::Device device = host_value_device(group);
  at::Tensor count = at::tensor({static_cast<int64_t>(text.size())}, at::kLong).to(device);
  broadcast(count, root, group);
  const auto size = count.item<int64_t>();
  if (size == 0) return "";
  at::Tensor bytes = at::empty({size}, at::kByte);
  if (group.rank() == root) std::memcpy(bytes.data_ptr<uint8_t>(), text.data(), text.size());
  at::Tensor sent = bytes.to(device);
  broadcast(sent, root, group);
  const at::Tensor received = sent.cpu();
  return {reinterpret_cast<const char*>(received.data_ptr<uint8_t>()), static_cast<size_t>(size)};
}

}  // namespace ddp
