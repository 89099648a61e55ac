#include "ddp/wrap_checks.h"

#include <sstream>
#include <stdexcept>

#include "comm/group/argument_checks.h"
#include "comm/group/verify_across_ranks.h"
#include "comm/reducer/option_rules.h"
#include "comm/reducer/parameter_checks.h"
#include "ddp/named_tensors.h"

namespace ddp {
namespace {

std::string describe(const char* kind, const NamedTensor& item) {
  std::ostringstream text;
  text << kind << " '" << item.name << "' " << item.tensor.scalar_type() << " " << item.tensor.sizes();
  if (!item.tensor.is_contiguous()) text << " strides " << item.tensor.strides();
  if (item.tensor.requires_grad()) text << " that requires a gradient";
  return text.str();
}

void check_broadcast(const std::string& kind, const std::vector<NamedTensor>& items, const GroupHandle& group) {
  for (const NamedTensor& item : items) {
    try {
      detail::check_unpackable(item.tensor, group,
                               ("DistributedDataParallel: " + kind + " '" + item.name + "'").c_str());
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(error.what() + std::string("; or name it in DdpOptions::ignored"));
    }
  }
}

}  // namespace

void refuse_python_ranks(const DdpOptions& options, const std::vector<int>& python_ranks, const std::string& rank) {
  const char* option = detail::option_not_in_python(options);
  if (option == nullptr || python_ranks.empty()) return;
  throw std::invalid_argument(rank + ": DistributedDataParallel: " + option +
                              " needs this library on every rank, but rank " + std::to_string(python_ranks.front()) +
                              " runs Python, which does not have it: leave it out, or run all ranks in C++");
}

void check_parameters(const ModelParameters& parameters, const DdpOptions& options, const GroupHandle& group) {
  if (parameters.trainable().empty() && options.delayed.names.empty()) {
    throw std::invalid_argument(
        who(group.info()) +
        ": DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.");
  }
  check_devices(tensors_of(parameters.all()), names_of(parameters.all()), group);
}

void compare_with_other_ranks(const ModelParameters& parameters, const DdpOptions& options, const GroupHandle& group) {
  std::vector<std::string> lines = detail::options_to_compare(options);
  for (const NamedTensor& parameter : parameters.all()) lines.push_back(describe("parameter", parameter));
  if (detail::syncs_buffers_at_start(options)) {
    for (const NamedTensor& buffer : parameters.buffers()) lines.push_back(describe("buffer", buffer));
  }
  verify_equal_across_ranks("the ranks' models", lines, group);
}

void check_can_be_broadcast(const ModelParameters& parameters, const DdpOptions& options, const GroupHandle& group) {
  const bool at_start = options.init_sync && detail::syncs_buffers_at_start(options);
  if (options.init_sync) check_broadcast("parameter", parameters.all(), group);
  if (at_start || detail::syncs_buffers_in_forward(options)) check_broadcast("buffer", parameters.buffers(), group);
}

}  // namespace ddp
