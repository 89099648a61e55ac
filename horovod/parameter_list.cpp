#include "horovod/parameter_list.h"

#include <sstream>
#include <stdexcept>

#include "comm/objects.h"

namespace ddp::horovod {
namespace {

std::string line_of(const std::string& name, const at::Tensor& tensor) {
  std::ostringstream line;
  line << "'" << name << "' (" << tensor.scalar_type() << " " << tensor.sizes() << ")";
  return line.str();
}

}  // namespace

void compare_parameters(const NamedTensors& parameters, const char* operation, const GroupHandle& group) {
  std::string list;
  for (const auto& [name, tensor] : parameters) list += line_of(name, tensor) + "\n";
  const std::string expected = broadcast_string(list, 0, group);
  if (expected == list) return;
  std::istringstream theirs(expected);
  std::istringstream ours(list);
  for (size_t i = 0;; ++i) {
    std::string their_line = "nothing";
    std::string our_line = "nothing";
    const bool has_theirs = static_cast<bool>(std::getline(theirs, their_line));
    const bool has_ours = static_cast<bool>(std::getline(ours, our_line));
    if (has_theirs && has_ours && their_line == our_line) continue;
    throw std::runtime_error(who(group.info()) + ": " + operation + ": parameter " + std::to_string(i) +
                             " differs: rank 0 has " + (has_theirs ? their_line : "none") + ", this rank " +
                             (has_ours ? our_line : "none") + ". All ranks need the same model.");
  }
}

}  // namespace ddp::horovod
