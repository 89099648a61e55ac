// What has to be true of parameters before their gradients can be reduced.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// Throws std::invalid_argument, naming a parameter, unless all are on one type of device that the group has a backend
/// for, and CUDA ones on this rank's device.
void check_devices(const std::vector<at::Tensor>& parameters, const std::vector<std::string>& names,
                   const GroupHandle& group);

/// Compares number, shapes and strides of the parameters, at least one, with rank 0's, as Python's DDP does; dtypes are
/// not compared. Every rank must call it; throws std::runtime_error on every rank that differs, with what differs.
void verify_parameters(const std::vector<at::Tensor>& parameters, const GroupHandle& group);

}  // namespace ddp
