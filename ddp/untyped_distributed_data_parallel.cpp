#include "ddprun/ddp/untyped_distributed_data_parallel.h"

#include <memory>
#include <typeinfo>
#include <utility>

#include "ddp/listed_parameters.h"

namespace ddp {
UntypedDistributedDataParallel::UntypedDistributedDataParallel(ModelTensors model, const GroupHandle& group,
                                                               const DdpOptions& options)
    : DdpWrapper(std::make_shared<DdpCore>(
          std::make_unique<ListedParameters>(std::move(model), options, who(group.info())), group, options)) {}

std::vector<at::Tensor> UntypedDistributedDataParallel::after_forward(std::vector<at::Tensor> outputs) {
  const std::type_info& type = outputs.empty() ? typeid(void) : typeid(outputs);
  const std::vector<at::Tensor> replacements = core().after_forward({.tensors = outputs}, type);
  for (size_t i = 0; i < replacements.size(); ++i) {
    if (replacements[i].defined()) outputs[i] = replacements[i];
  }
  return outputs;
}

}  // namespace ddp
