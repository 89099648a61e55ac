#include "horovod/parameter_list.h"

#include <sstream>
#include <string>
#include <vector>

#include "comm/group/verify_across_ranks.h"

namespace ddp::horovod {
namespace {

std::string line_of(const std::string& name, const at::Tensor& tensor) {
  std::ostringstream line;
  line << "'" << name << "' (" << tensor.scalar_type() << " " << tensor.sizes() << ")";
  return line.str();
}

}  // namespace

void compare_parameters(const NamedTensors& parameters, const char* operation, const GroupHandle& group) {
  std::vector<std::string> lines;
  for (const auto& [name, tensor] : parameters) lines.push_back(line_of(name, tensor));
  verify_equal_across_ranks(std::string(operation) + ": the ranks' parameters", lines, group);
}

}  // namespace ddp::horovod
