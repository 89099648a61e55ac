#include "tests/support/device/launch.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include <cstring>
#include <optional>
#include <utility>

#include "tests/support/device/caller.h"
#include "tests/support/device/devices.h"

namespace ddp::test::device {
namespace {

constexpr int kFreshFloats = 0xFF;  // a NaN of every floating type
constexpr int kFreshOthers = 0xAA;  // no index

struct Range {
  char* begin = nullptr;
  size_t bytes = 0;
  int byte = 0;
};

bool is_floating(const at::Tensor& tensor) {
  return tensor.is_floating_point() || tensor.is_complex();
}

// They carry on what nothing has written: LibTorch's broadcast_coalesced packs the tensors that it is to receive.
bool only_copies(const std::string& name) {
  return name == "copy_" || name == "aten::cat" || name == "aten::clone";
}

// With what comes before it: memory that nothing has used is made unlike anything.
std::function<void()> noted(c10::Stream stream, const std::vector<Use>& uses, const std::string& name,
                            std::function<void()> kernel) {
  devices().ledger.count([](Counts& counts) { ++counts.launches; });
  devices().ledger.touch(stream.device_index());
  std::vector<Range> fresh;
  for (const Use& use : uses) {
    if (!use.tensor.defined() || !is_ours(use.tensor.device()) || use.tensor.numel() == 0) continue;
    Block* block = DeviceAllocator::block_of(use.tensor.storage().data_ptr());
    if (block == nullptr) block = devices().allocator.block_at(use.tensor.const_data_ptr());
    if (block == nullptr) {
      devices().ledger.fault(name + " uses memory of " + use.tensor.device().str() +
                             " that nothing has allocated, by " + caller());
      continue;
    }
    devices().books.used(block, use.is_written, stream, name);
    if (!block->is_fresh.exchange(false)) continue;
    if (!use.is_written && !only_copies(name)) {
      devices().ledger.fault(name + " reads memory of " + use.tensor.device().str() +
                             " that nothing has written: " + block->name() + ", by " + caller());
    }
    fresh.push_back({.begin = devices().memory.real(block->shown),
                     .bytes = block->room,
                     .byte = is_floating(use.tensor) ? kFreshFloats : kFreshOthers});
  }
  return [fresh = std::move(fresh), kernel = std::move(kernel)] {
    for (const Range& range : fresh) std::memset(range.begin, range.byte, range.bytes);
    kernel();
  };
}

}  // namespace

at::Tensor for_kernel(const at::Tensor& tensor) {
  if (!tensor.defined() || !is_ours(tensor.device())) return tensor;
  const c10::InferenceMode off(false);
  void* address = tensor.numel() == 0 ? nullptr : devices().memory.real(tensor.const_data_ptr());
  at::Tensor real = at::from_blob(address, tensor.sizes(), tensor.strides(), at::TensorOptions(tensor.scalar_type()));
  real._set_conj(tensor.is_conj());  // copies meet them
  real._set_neg(tensor.is_neg());
  return real;
}

void launch(c10::Stream stream, const std::vector<Use>& uses, const std::string& name, std::function<void()> kernel) {
  devices().engine.launch(key_of(stream), noted(stream, uses, name, std::move(kernel)));
}

void launch_waiting_for(c10::Stream stream, const std::vector<Use>& uses, const std::string& name,
                        std::function<void()> kernel, const PointPtr& end) {
  devices().engine.launch_waiting_for(key_of(stream), noted(stream, uses, name, std::move(kernel)), end);
}

c10::Device one_device(const std::vector<at::Tensor>& tensors, const std::string& name) {
  std::optional<c10::Device> device;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !is_ours(tensor.device())) continue;
    if (!device) device = tensor.device();
    if (*device == tensor.device()) continue;
    devices().ledger.wrong_device(name + " got tensors of " + device->str() + " and " + tensor.device().str());
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", *device,
                " and ", tensor.device(), "! (in ", name, ")");
  }
  return device.value_or(current_device());
}

}  // namespace ddp::test::device
