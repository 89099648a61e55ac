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

template <typename... Parts>
std::string joined(const Parts&... parts) {
  std::ostringstream line;
  (line << ... << parts);
  return line.str();
}

const char* name(Op op) {
  return op == Op::kAverage ? "kAverage" : op == Op::kSum ? "kSum" : "kAdasum";
}

const char* name(Compression compression) {
  return compression == Compression::kNone ? "kNone" : compression == Compression::kFp16 ? "kFp16" : "kBf16";
}

}  // namespace

void compare_parameters(const NamedTensors& parameters, const char* operation, const GroupHandle& group) {
  std::vector<std::string> lines;
  for (const auto& [name, tensor] : parameters) lines.push_back(line_of(name, tensor));
  verify_equal_across_ranks(std::string(operation) + ": the ranks' parameters", lines, group);
}

void compare_options(const DistributedOptimizerOptions& options, const BucketPlan& plan, const GroupHandle& group) {
  std::vector<std::string> lines{joined("option op = ", name(options.op)),
                                 joined("option compression = ", name(options.compression)),
                                 joined("option backward_passes_per_step = ", options.backward_passes_per_step),
                                 joined("option gradient_predivide_factor = ", options.gradient_predivide_factor),
                                 joined("option sparse_as_dense = ", options.sparse_as_dense ? "true" : "false")};
  for (const auto& members : plan) {
    std::ostringstream line;
    line << "a message of the parameters number";
    for (const size_t i : members) line << ' ' << i;
    lines.push_back(line.str());
  }
  verify_equal_across_ranks("DistributedOptimizer: the ranks' options", lines, group);
}

}  // namespace ddp::horovod
