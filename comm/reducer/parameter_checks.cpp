#include "comm/reducer/parameter_checks.h"

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <stdexcept>

#include "comm/backends/c10d_compat.h"
#include "comm/group/failure_cause.h"
#include "comm/group/group_state.h"
#include "comm/group/store.h"
#include "comm/group/verify_across_ranks.h"

namespace ddp {

void check_devices(const std::vector<at::Tensor>& parameters, const std::vector<std::string>& names,
                   const GroupHandle& group) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const c10::Device device = parameters[i].device();
    const std::string begin =
        who(group.info()) + ": DistributedDataParallel: parameter '" + names[i] + "' is on " + device.str();
    if (device.type() != parameters[0].device().type()) {
      throw std::invalid_argument(begin + " and '" + names[0] + "' on " + parameters[0].device().str() +
                                  "; all parameters must be on one type of device");
    }
    if (detail::backend_for(group, device) == nullptr) {
      throw std::invalid_argument(begin + ", which backend '" + group.backend() +
                                  "' does not support: move the model to " + group.device().str() + " first");
    }
    if (device.is_cuda() && group.device().is_cuda() && device != group.device()) {
      throw std::invalid_argument(begin + ", but the device of its process group is " + group.device().str() +
                                  ": move the model there before wrapping it");
    }
  }
}

void verify_parameters(const std::vector<at::Tensor>& parameters, const GroupHandle& group) {
  detail::GroupState& state = group.state();
  const auto c10d_group = state.group("DistributedDataParallel");
  // Ranks of this library have compared their models before, so that what fails between them is the connection.
  const bool is_compared = ranks_running_python(group).empty();
  const uint64_t number = state.next_operation("DistributedDataParallel's comparison of parameters");
  try {
    c10d::verify_params_across_processes(c10d_group, parameters, std::nullopt);
  } catch (const std::exception& error) {
    throw std::runtime_error(who(group.info()) +
                             ": DistributedDataParallel: the ranks' parameters could not be compared: " +
                             detail::message_of(error) + (is_compared ? detail::failure_cause(state, number) : ""));
  }
  state.log().end(number);
}

}  // namespace ddp
