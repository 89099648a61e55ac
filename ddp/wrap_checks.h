// What has to be true before a model is wrapped, on this rank and between the ranks.
#pragma once

#include <string>
#include <vector>

#include <ddprun/comm/ddp_options.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/detail/ddp/model_parameters.h>

namespace ddp {

/// Throws std::invalid_argument when an option is set that Python's DDP does not have and `python_ranks` run it: with
/// other buckets than Python's, or collectives of our own, the ranks' messages would not fit each other.
void refuse_python_ranks(const DdpOptions& options, const std::vector<int>& python_ranks, const std::string& rank);

/// Throws std::invalid_argument when there is nothing to reduce, and as check_devices().
void check_parameters(const ModelParameters& parameters, const DdpOptions& options, const GroupHandle& group);

/// Every rank must call it; throws std::runtime_error on every rank, with the first difference of the models or of the
/// options.
void compare_with_other_ranks(const ModelParameters& parameters, const DdpOptions& options, const GroupHandle& group);

/// Throws std::invalid_argument that names a parameter or buffer whose kind no broadcast takes, such as a dtype that
/// the backend lacks. After the comparison, by which all ranks refuse it.
void check_can_be_broadcast(const ModelParameters& parameters, const DdpOptions& options, const GroupHandle& group);

}  // namespace ddp
