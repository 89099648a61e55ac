// The times of DistributedDataParallel's logging data, by events on the device, as LibTorch's CUDA half takes them.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <memory>

namespace ddp::test::device {

std::unique_ptr<c10d::Timer> make_timer(c10::Device device);

}  // namespace ddp::test::device
