// Kernels: functions of CPU tensors that lie over device memory, run by the device's thread in the order of a stream.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/device/engine.h"

namespace ddp::test::device {

struct Use {
  at::Tensor tensor;
  bool is_written = false;
};

/// The tensor as kernels see it: a CPU tensor at the address that may be accessed. Keeps no memory alive, as a kernel
/// does not. Tensors of the CPU are returned as they are.
at::Tensor for_kernel(const at::Tensor& tensor);

/// Queues `kernel`, which touches these device tensors and no others, and holds none of them.
void launch(c10::Stream stream, const std::vector<Use>& uses, const std::string& name, std::function<void()> kernel);

/// As launch(); what follows on the stream waits for `end`, which the kernel has others reach.
void launch_waiting_for(c10::Stream stream, const std::vector<Use>& uses, const std::string& name,
                        std::function<void()> kernel, const PointPtr& end);

/// The device of the tensors, which is one, as on a GPU; CPU tensors are left out. Throws otherwise.
c10::Device one_device(const std::vector<at::Tensor>& tensors, const std::string& name);

}  // namespace ddp::test::device
