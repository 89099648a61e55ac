#include "tests/support/fake_cuda.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>

#include "tests/support/stream_books.h"

namespace ddp::test {
namespace {

constexpr c10::DeviceIndex kDevices = 3;

StreamBooks& books() {
  static StreamBooks the_books;
  return the_books;
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    device_ = device.index();
    return before;
  }
  c10::Device getDevice() const override { return {c10::kCUDA, device_}; }
  void setDevice(c10::Device device) const override { device_ = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { device_ = device.index(); }
  c10::Stream getStream(c10::Device device) const override {
    const auto index = device.has_index() ? device.index() : device_;
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, index), streams_.at(static_cast<size_t>(index)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    return new_stream(device.index());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    streams_.at(static_cast<size_t>(stream.device_index())) = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new char;
    books().record(*event, stream);
  }
  void block(void* event, const c10::Stream& stream) const override { books().block(event, stream); }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    books().forget(event);
    delete static_cast<char*>(event);
  }
  void synchronizeEvent(void* event) const override { books().host_waits_for(event); }
  void synchronizeDevice(c10::DeviceIndex) const override { books().host_waits(); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    books().keep_for(data.get_context(), stream);
  }

 private:
  static thread_local c10::DeviceIndex device_;
  static thread_local std::array<c10::StreamId, kDevices> streams_;
};
thread_local c10::DeviceIndex Guard::device_ = 0;
thread_local std::array<c10::StreamId, kDevices> Guard::streams_{};

const Guard& guard() {
  static const Guard the_guard;
  return the_guard;
}

// What LibTorch asks before it believes in CUDA; autograd then orders streams as it does there.
class Hooks final : public at::CUDAHooksInterface {
 public:
  explicit Hooks(at::CUDAHooksArgs /*unused*/) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  int getNumGPUs() const override { return kDevices; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
};

// Each block's address is the context of its DataPtr, under which the books know it.
class FakeAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = std::malloc(std::max<size_t>(bytes, 1));
    books().allocated(memory, guard().getStream(guard().getDevice()));
    return {memory, memory, &release, guard().getDevice()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void release(void* memory) {
    books().freed(memory);
    std::free(memory);
  }
};

FakeAllocator& allocator() {
  static FakeAllocator the_allocator;
  return the_allocator;
}

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard on(device->has_index() ? *device : guard().getDevice());
  return at::detail::empty_strided_generic(sizes, strides, &allocator(), kKeys, dtype.value_or(at::kFloat));
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard on(device->has_index() ? *device : guard().getDevice());
  return at::detail::empty_generic(sizes, &allocator(), kKeys, dtype.value_or(at::kFloat), format);
}

// The same memory as a CPU tensor.
at::Tensor as_cpu(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions(tensor.scalar_type()));
}

at::Tensor on_device(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || tensor.is_cuda()) return tensor;
  at::Tensor result = empty_strided(tensor.sizes(), tensor.strides(), tensor.scalar_type(), {}, device, {});
  as_cpu(result).copy_(tensor);
  return result;
}

void note(const at::Tensor& tensor, bool writes, c10::Stream stream, const std::string& what) {
  if (tensor.defined() && tensor.is_cuda() && tensor.numel() > 0) {
    books().used(tensor.storage().data_ptr().get_context(), writes, stream, what);
  }
}

// On the source's stream, with both streams waiting for each other, as CUDA's copy between devices does.
at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const c10::Stream on = guard().getStream(source.is_cuda() ? source.device() : self.device());
  const c10::Stream other = guard().getStream(self.is_cuda() ? self.device() : source.device());
  books().follow(on, other);
  note(source, /*writes=*/false, on, "copy_");
  note(self, /*writes=*/true, on, "copy_");
  as_cpu(self).copy_(as_cpu(source));
  books().follow(other, on);
  if (!non_blocking && (self.is_cpu() || source.is_cpu())) books().host_waits_for(on);
  return self;
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  books().keep_for(self.storage().data_ptr().get_context(), stream);
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const size_t first = stack->size() - schema.arguments().size();
  std::vector<c10::IValue> given(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  std::optional<c10::Device> device;
  const auto take = [&](const at::Tensor& tensor, bool writes) {
    if (!tensor.defined() || !tensor.is_cuda()) return tensor;
    if (!device) device = tensor.device();
    note(tensor, writes, guard().getStream(tensor.device()), schema.name());
    return as_cpu(tensor);
  };
  for (size_t i = 0; i < given.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    const bool writes = alias != nullptr && alias->isWrite();
    c10::IValue& slot = (*stack)[first + i];
    if (given[i].isTensor()) {
      slot = take(given[i].toTensor(), writes);
    } else if (given[i].isTensorList()) {
      std::vector<at::Tensor> list;
      for (const at::Tensor& tensor : given[i].toTensorVector()) list.push_back(take(tensor, writes));
      slot = list;
    } else if (given[i].isDevice()) {
      device = given[i].toDevice();
      slot = c10::Device(c10::kCPU);
    }
  }
  {
    const at::AutoDispatchBelowAutograd below;
    op.callBoxed(stack);
  }
  const size_t results = stack->size() - schema.returns().size();
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    c10::IValue& result = (*stack)[results + i];
    if (!result.isTensor() || !device) continue;
    const auto* alias = schema.returns()[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) {
      result = on_device(result.toTensor(), *device);
      note(result.toTensor(), /*writes=*/true, guard().getStream(*device), schema.name());
      continue;
    }
    for (size_t k = 0; k < given.size(); ++k) {
      const auto* of_argument = schema.arguments()[k].alias_info();
      if (of_argument != nullptr && *of_argument == *alias) result = given[k];
    }
  }
}

at::Tensor strided_view(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                        std::optional<int64_t> offset) {
  auto result = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(self.storage()),
                                                         self.key_set(), self.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset.value_or(self.storage_offset()));
  return result;
}

at::Tensor view(const at::Tensor& self, c10::IntArrayRef sizes) {
  const at::Tensor shape = as_cpu(self).view(sizes);
  return strided_view(self, shape.sizes(), shape.strides(), self.storage_offset());
}

at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return strided_view(self, sizes, strides, self.storage_offset());
}

}  // namespace

void use_fake_cuda() {
  static const bool once = [] {
    at::CUDAHooksRegistry()->Register("CUDAHooks",
                                      [](at::CUDAHooksArgs arguments) -> std::unique_ptr<at::CUDAHooksInterface> {
                                        return std::make_unique<Hooks>(arguments);
                                      });
    c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)].store(&guard());
    static torch::Library operators(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
    operators.impl("empty.memory_format", TORCH_FN(empty));
    operators.impl("empty_strided", TORCH_FN(empty_strided));
    operators.impl("as_strided", TORCH_FN(strided_view));
    operators.impl("view", TORCH_FN(view));
    operators.impl("_reshape_alias", TORCH_FN(reshape_alias));
    operators.impl("copy_", TORCH_FN(copy));
    operators.impl("record_stream", TORCH_FN(record_stream));
    static torch::Library others(torch::Library::IMPL, "_", c10::DispatchKey::CUDA, __FILE__, __LINE__);
    others.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
    return true;
  }();
  static_cast<void>(once);
}

c10::Stream new_stream(int index) {
  static std::atomic<c10::StreamId> last{0};
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index)), ++last);
}

std::vector<std::string> stream_faults() {
  return books().faults();
}

void wait_for_fake_cuda() {
  books().host_waits();
}

}  // namespace ddp::test
