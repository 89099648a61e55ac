// Copies between the host and devices, with the waits of CUDA's.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>

#include "tests/support/device/caller.h"
#include "tests/support/device/devices.h"
#include "tests/support/device/host_memory.h"
#include "tests/support/device/launch.h"
#include "tests/support/device/operators.h"

namespace ddp::test::device {
namespace {

constexpr int kUnknownByte = 0xFF;
constexpr const char* kName = "copy_";

bool is_locked(const at::Tensor& tensor) {
  return tensor.numel() == 0 || is_page_locked(tensor.const_data_ptr());
}

// Whether the host's memory is copied as it is; else a GPU goes through a temporary tensor, which is not page-locked.
bool is_plain(const at::Tensor& self, const at::Tensor& source) {
  return self.scalar_type() == source.scalar_type() && self.sizes() == source.sizes() && self.is_contiguous() &&
         source.is_contiguous() && self.is_conj() == source.is_conj() && self.is_neg() == source.is_neg();
}

// The suites of other folders bring what they have made by a plain copy, for which nothing is to wait (placement.h).
bool may_be_pageable() {
  static const bool may = std::getenv("DDPRUN_TEST_ON_DEVICES") != nullptr;
  return may;
}

void to_device(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const c10::Stream stream = current_stream(self.device().index());
  const bool is_direct = is_locked(source) && is_plain(self, source);
  devices().ledger.count([&](Counts& counts) { ++counts.to_device, counts.pageable += is_direct ? 0 : 1; });
  const std::vector<Use> uses{{.tensor = self, .is_written = true}};
  // c10d does so with the order of buckets, of which the driver takes a copy.
  if (non_blocking && !is_direct && !may_be_pageable() && !is_called_by_c10d()) {
    devices().ledger.fault("a copy from the host's pageable memory was asked not to wait, by " + caller());
  }
  if (!is_direct) {
    // What may not change any more is copied out before the call returns, as CUDA's driver does.
    launch(stream, uses, kName, [to = for_kernel(self), from = source.detach().clone()] { to.copy_(from); });
  } else {
    launch(stream, uses, kName, [to = for_kernel(self), from = for_copy(source)] { to.copy_(from); });
    begin_copy(source, stream, /*is_written=*/false);
  }
  if (!non_blocking) wait_for(stream, "copy_ to the device");
}

void to_host(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const c10::Stream stream = current_stream(source.device().index());
  const bool is_direct = is_locked(self) && is_plain(self, source);
  devices().ledger.count([&](Counts& counts) { ++counts.to_host, counts.pageable += is_direct ? 0 : 1; });
  if (non_blocking && !is_direct) {
    devices().ledger.fault("a copy to the host's pageable memory was asked not to wait, by " + caller());
  }
  if (non_blocking && !is_direct && self.is_contiguous()) {
    std::memset(self.mutable_data_ptr(), kUnknownByte, self.nbytes());  // nothing may read it yet
  }
  launch(stream, {{.tensor = source}}, kName,
         [to = is_direct ? for_copy(self) : at::Tensor(self.detach()), from = for_kernel(source)] { to.copy_(from); });
  if (is_direct) begin_copy(self, stream, /*is_written=*/true);
  if (!non_blocking) wait_for(stream, "copy_ to the host");
}

// On the source's stream; both streams wait for each other, as with CUDA's copy between devices.
void between(const at::Tensor& self, const at::Tensor& source) {
  const c10::Stream on = current_stream(source.device().index());
  const c10::Stream other = current_stream(self.device().index());
  const bool is_within = on.device() == other.device();
  devices().ledger.count([&](Counts& counts) { ++(is_within ? counts.within_device : counts.between_devices); });
  follow(on, other);
  launch(on, {{.tensor = source}, {.tensor = self, .is_written = true}}, kName,
         [to = for_kernel(self), from = for_kernel(source)] { to.copy_(from); });
  follow(other, on);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.numel() == 0) return self;
  if (is_ours(self.device()) && is_ours(source.device())) {
    between(self, source);
  } else if (is_ours(self.device())) {
    to_device(self, source, non_blocking);
  } else {
    to_host(self, source, non_blocking);
  }
  return self;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& to, bool non_blocking) {
  at::Tensor target = to;
  return copy_(target, source, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& to) {
  resize_memory(to, source.sizes());
  return copy_from(source, to, /*non_blocking=*/false);
}

}  // namespace

void register_copies(torch::Library& aten) {
  aten.impl("copy_", TORCH_FN(copy_));
  aten.impl("_copy_from", TORCH_FN(copy_from));
  aten.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
}

}  // namespace ddp::test::device
