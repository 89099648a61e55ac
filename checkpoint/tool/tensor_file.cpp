#include "checkpoint/tool/tensor_file.h"

#include <map>
#include <stdexcept>
#include <string>

#include "checkpoint/core/safetensors_dtypes.h"
#include "checkpoint/tool/element_reader.h"

namespace ddp::tool {

void write_tensor_file(storage::ByteSink& sink, const std::vector<RawTensor>& tensors, const Metadata& metadata) {
  safetensors::Header header;
  header.metadata = metadata;
  std::map<std::string, const RawTensor*> by_name;
  for (const auto& tensor : tensors) {
    const auto dtype = safetensors::dtype_of_python_name(tensor.dtype);
    if (!dtype) {
      throw std::invalid_argument("the safetensors format has no dtype for " + tensor.dtype + " (tensor " +
                                  safetensors::quote_name(tensor.name) + ")");
    }
    header.tensors.push_back({.name = tensor.name, .dtype = *dtype, .shape = tensor.sizes});
    if (!by_name.emplace(tensor.name, &tensor).second) {
      throw std::invalid_argument("model and optimizer both have a tensor " + safetensors::quote_name(tensor.name));
    }
  }
  safetensors::assign_ranges(header.tensors);
  const auto head = safetensors::format_header(header);
  sink.write(head.data(), head.size());
  ElementReader reader;
  for (const auto& entry : header.tensors) reader.add(*by_name.at(entry.name));
  for (size_t i = 0; i < header.tensors.size(); ++i) reader.write(i, sink);
}

}  // namespace ddp::tool
