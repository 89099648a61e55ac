// Making, resizing and viewing the device's tensors.
#include <ATen/EmptyTensor.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>

#include "tests/support/device/devices.h"
#include "tests/support/device/launch.h"
#include "tests/support/device/mutation.h"
#include "tests/support/device/operators.h"

namespace ddp::test::device {
namespace {

c10::Device device_for(std::optional<at::Device> device) {
  return device && device->has_index() ? *device : current_device();
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                         std::optional<bool> /*pin*/) {
  return empty_on(device_for(device), sizes, strides, c10::dtype_or_default(dtype));
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                 std::optional<at::Device> device, std::optional<bool> /*pin*/,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard on(device_for(device));
  return at::detail::empty_generic(sizes, &devices().allocator, c10::DispatchKeySet(devices().key),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor view_of(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset) {
  auto result = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(self.storage()),
                                                         self.key_set(), self.dtype());
  result.unsafeGetTensorImpl()->set_storage_offset(offset);
  result.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return result;
}

at::Tensor as_strided(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                      std::optional<int64_t> offset) {
  return view_of(self, sizes, strides, offset.value_or(self.storage_offset()));
}

// The CPU's answer about the shape alone: the memory is not looked at.
at::Tensor shape_on_cpu(const at::Tensor& self) {
  static char nothing;
  return at::from_blob(&nothing, self.sizes(), self.strides(), at::TensorOptions(self.scalar_type()));
}

at::Tensor view(const at::Tensor& self, c10::IntArrayRef sizes) {
  const at::Tensor shape = shape_on_cpu(self).view(sizes);
  return view_of(self, shape.sizes(), shape.strides(), self.storage_offset());
}

at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return view_of(self, sizes, strides, self.storage_offset());
}

at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  const at::Tensor shape = shape_on_cpu(self).unfold(dimension, size, step);
  return view_of(self, shape.sizes(), shape.strides(), self.storage_offset());
}

// The same memory as numbers of another type, of which each is two or half of one before.
at::Tensor as_other_numbers(const at::Tensor& self, const at::Tensor& shape, int64_t offset) {
  at::Tensor result = view_of(self, shape.sizes(), shape.strides(), offset);
  result.unsafeGetTensorImpl()->set_storage_and_dtype(self.storage(), shape.dtype());
  return result;
}

at::Tensor view_as_real(const at::Tensor& self) {
  return as_other_numbers(self, at::view_as_real(shape_on_cpu(self)), 2 * self.storage_offset());
}

at::Tensor view_as_complex(const at::Tensor& self) {
  return as_other_numbers(self, at::view_as_complex(shape_on_cpu(self)), self.storage_offset() / 2);
}

// A storage of at least so many bytes, with what was in it.
void make_room(const at::Tensor& tensor, size_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (storage->nbytes() >= bytes) return;
  const c10::DeviceGuard on(tensor.device());
  const size_t before = storage->nbytes();
  const at::Tensor larger = empty_on(tensor.device(), {static_cast<int64_t>(bytes)}, {1}, at::kByte);
  if (before > 0) {
    at::Tensor old = empty_on(tensor.device(), {0}, {1}, at::kByte);
    old.unsafeGetTensorImpl()->set_storage_keep_dtype(tensor.storage());
    old.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(before)});
    launch(current_stream(tensor.device().index()), {{.tensor = old}, {.tensor = larger, .is_written = true}},
           "resize_", [from = for_kernel(old), to = for_kernel(larger)] {
             std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
           });
  }
  storage->set_data_ptr(larger.storage().unsafeGetStorageImpl()->set_data_ptr({nullptr, tensor.device()}));
  storage->set_nbytes(bytes);
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  resize_memory(self, sizes);
  if (format && *format != at::MemoryFormat::Preserve) self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, int64_t offset, c10::IntArrayRef sizes,
                        c10::IntArrayRef strides) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  if (strides.empty() && !sizes.empty()) {
    impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, strides);
  }
  make_room(self, (at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.itemsize(),
                                                    static_cast<size_t>(offset))));
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage storage) {
  const auto count = static_cast<int64_t>(storage.nbytes() / self.itemsize());
  return set_storage(self, std::move(storage), 0, {count}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

bool is_set_to(const at::Tensor& self, const at::Tensor& other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
         self.strides() == other.strides();
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  if (mutation::is_left_out(mutation::Act::kRecordStream)) return;
  if (Block* block = DeviceAllocator::block_of(self.storage().data_ptr())) devices().allocator.used_on(*block, stream);
}

}  // namespace

at::Tensor empty_on(c10::Device device, c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype) {
  const c10::DeviceGuard on(device);
  return at::detail::empty_strided_generic(sizes, strides, &devices().allocator, c10::DispatchKeySet(devices().key),
                                           dtype);
}

void resize_memory(const at::Tensor& tensor, c10::IntArrayRef sizes) {
  if (tensor.sizes() == sizes) return;
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  make_room(tensor, at::detail::computeStorageNbytesContiguous(sizes, tensor.itemsize(),
                                                               static_cast<size_t>(tensor.storage_offset())));
}

void register_tensors(torch::Library& aten) {
  aten.impl("empty.memory_format", TORCH_FN(empty));
  aten.impl("empty_strided", TORCH_FN(empty_strided));
  aten.impl("as_strided", TORCH_FN(as_strided));
  aten.impl("view", TORCH_FN(view));
  aten.impl("_reshape_alias", TORCH_FN(reshape_alias));
  aten.impl("unfold", TORCH_FN(unfold));
  aten.impl("view_as_real", TORCH_FN(view_as_real));
  aten.impl("view_as_complex", TORCH_FN(view_as_complex));
  aten.impl("resize_", TORCH_FN(resize_));
  aten.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  aten.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  aten.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  aten.impl("is_set_to", TORCH_FN(is_set_to));
  aten.impl("record_stream", TORCH_FN(record_stream));
}

}  // namespace ddp::test::device
