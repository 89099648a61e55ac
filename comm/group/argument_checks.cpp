#include "comm/group/argument_checks.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "base/joined.h"
#include "comm/core/graph_capture.h"
#include "comm/group/connect_group.h"
#include "comm/group/group_state.h"
#include "comm/group/verify_across_ranks.h"

namespace ddp::detail {
namespace {

void check_served(const at::Tensor& tensor, const GroupHandle& group, const char* operation) {
  if (backend_for(group, tensor.device()) == nullptr) {
    refuse(group, operation, "backend '" + group.backend() + "' does not support a " + describe(tensor));
  }
}

// The integers of a quantized tensor have no meaning without its quantizer, which backends do not send.
void refuse_quantized(const at::Tensor& tensor, const GroupHandle& group, const char* operation) {
  if (!tensor.is_quantized()) return;
  refuse(
      group, operation,
      "expected a plain tensor, got a quantized one, a " + describe(tensor) + ": pass .int_repr(), or .dequantize()");
}

}  // namespace

void refuse(const GroupHandle& group, const char* operation, const std::string& why) {
  throw std::invalid_argument(who(group.info()) + ": " + operation + ": " + why);
}

std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.scalar_type() << " tensor of shape " << tensor.sizes() << " on " << tensor.device();
  return text.str();
}

void check_message(const at::Tensor& tensor, const GroupHandle& group, const char* operation) {
  if (!tensor.defined()) refuse(group, operation, "the tensor is undefined");
  if (tensor.layout() != at::kStrided) refuse(group, operation, "expected a dense tensor, got a " + describe(tensor));
  refuse_quantized(tensor, group, operation);
  if (!tensor.is_contiguous()) {
    refuse(group, operation,
           "expected a contiguous tensor, got strides in a " + describe(tensor) + ": pass .contiguous()");
  }
  // The memory of such tensors holds other values than the tensors, and backends send and write the memory.
  if (tensor.is_conj() || tensor.is_neg()) {
    refuse(group, operation,
           std::string("got a view that ") + (tensor.is_conj() ? "conjugates" : "negates") + " what is in memory, a " +
               describe(tensor) + ": pass " + (tensor.is_conj() ? ".resolve_conj()" : ".resolve_neg()"));
  }
  check_served(tensor, group, operation);
}

void check_tensor(const at::Tensor& tensor, const GroupHandle& group, const char* operation) {
  check_message(tensor, group, operation);
  check_dtype(tensor, group, operation);
}

void check_dtype(const at::Tensor& tensor, const GroupHandle& group, const char* operation) {
  const BackendTraits* backend = backend_for(group, tensor.device());
  if (backend == nullptr || backend->dtypes.empty()) return;
  const at::ScalarType dtype = tensor.scalar_type();
  const at::ScalarType sent = at::isComplexType(dtype) ? at::toRealValueType(dtype) : dtype;
  if (std::ranges::find(backend->dtypes, c10::toString(sent)) != backend->dtypes.end()) return;
  // In a group with Python ranks, c10d has to refuse the call: Python's gloo counts refused calls too, so ranks that do
  // not count them would fall out of step.
  if (!ranks_running_python(group).empty()) return;
  refuse(group, operation,
         backend->title + "'s collectives do not support " + c10::toString(dtype) + ", got a " + describe(tensor) +
             ": convert it to one of " + joined(backend->dtypes) + " or a complex dtype");
}

void check_rank(int rank, const char* role, const GroupHandle& group, const char* operation) {
  if (rank < 0 || rank >= group.size()) {
    refuse(group, operation,
           std::string(role) + " " + std::to_string(rank) + " is not a rank: expected 0 to " +
               std::to_string(group.size() - 1));
  }
}

void check_wait(const CollectiveOptions& options, const GroupHandle& group, const char* operation) {
  if (options.timeout) check_timeout(group.info(), operation, *options.timeout);
}

c10::Device host_value_device(const GroupHandle& group) {
  refuse_capture(who(group.info()) + ": a collective of numbers or strings",
                 "the host waits for them, and replays would not update them. Leave it out of the capture");
  return backends_of(group).cpu == nullptr ? group.device() : c10::Device(c10::kCPU);
}

void check_packable(const at::Tensor& tensor, const GroupHandle& group, const char* operation) {
  if (!tensor.defined()) refuse(group, operation, "a tensor is undefined");
  if (tensor.layout() != at::kStrided) refuse(group, operation, "expected dense tensors, got a " + describe(tensor));
  refuse_quantized(tensor, group, operation);
  check_served(tensor, group, operation);
  check_dtype(tensor, group, operation);
}

void check_unpackable(const at::Tensor& tensor, const GroupHandle& group, const char* operation) {
  check_packable(tensor, group, operation);
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    refuse(group, operation,
           "got an expanded tensor, whose elements share memory, a " + describe(tensor) + ": pass .contiguous()");
  }
}

}  // namespace ddp::detail
