// Internal: checks of what an operation is given on this rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>

namespace ddp::detail {

/// Throws std::invalid_argument: this rank's arguments are wrong.
[[noreturn]] void refuse(const GroupHandle& group, const char* operation, const std::string& why);

/// "Float tensor of shape [2, 3] on cpu".
std::string describe(const at::Tensor& tensor);

/// Refuses what no backend takes: undefined, sparse, quantized, with gaps, lazily conjugated or negated, on a device
/// that the group does not serve.
void check_message(const at::Tensor& tensor, const GroupHandle& group, const char* operation);
/// And what collectives don't take: a dtype that the backend lacks. Messages between two ranks are bytes.
void check_tensor(const at::Tensor& tensor, const GroupHandle& group, const char* operation);
/// A dtype that the collectives of the tensor's backend lack.
void check_dtype(const at::Tensor& tensor, const GroupHandle& group, const char* operation);
void check_rank(int rank, const char* role, const GroupHandle& group, const char* operation);

/// Refuses a timeout that is not above 0.
void check_wait(const CollectiveOptions& options, const GroupHandle& group, const char* operation);

/// Where small values of the host travel: a CPU backend if there is one, else the rank's GPU.
c10::Device host_value_device(const GroupHandle& group);

/// Refuses what cannot be packed into one message with others: undefined and sparse and quantized tensors, devices
/// that the group does not serve, dtypes that its collectives lack.
void check_packable(const at::Tensor& tensor, const GroupHandle& group, const char* operation);
/// And what cannot be written to when it is unpacked: expanded tensors.
void check_unpackable(const at::Tensor& tensor, const GroupHandle& group, const char* operation);

}  // namespace ddp::detail
