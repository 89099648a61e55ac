// A safetensors header to damage, and what every header that parse_header() accepts promises.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include <ddprun/checkpoint/safetensors_header.h>

namespace ddp::safetensors::test {

constexpr std::uint64_t kExampleDataBytes = 8 + 64 + 36 + 6;

/// Length and JSON of a header with metadata, a scalar and a tensor without elements, for kExampleDataBytes of data.
inline std::string example_header() {
  Header header;
  header.metadata = {{"epoch", "12"}, {"note", "a \"quoted\" wörd"}};
  header.tensors = {{.name = "conv.weight", .dtype = DType::kF32, .shape = {4, 1, 2, 2}},
                    {.name = "conv.bias", .dtype = DType::kF32, .shape = {3, 3}},
                    {.name = "bn.num_batches_tracked", .dtype = DType::kI64, .shape = {}},
                    {.name = "mask", .dtype = DType::kBool, .shape = {2, 3}},
                    {.name = "none", .dtype = DType::kBF16, .shape = {0, 7}}};
  assign_ranges(header.tensors);
  return format_header(header);
}

/// The first promise that `header` breaks, or null.
inline const char* broken_promise(const Header& header, std::uint64_t data_bytes) {
  std::uint64_t position = 0;
  std::set<std::string> names;
  for (const auto& tensor : header.tensors) {
    if (!names.insert(tensor.name).second) return "names are unique";
    if (tensor.begin != position) return "there is no hole and no overlap";
    std::uint64_t bytes = dtype_bytes(tensor.dtype);
    for (const auto size : tensor.shape) bytes *= static_cast<std::uint64_t>(size);
    if (tensor.end - tensor.begin != bytes) return "a range is as long as dtype and shape ask";
    position = tensor.end;
  }
  return position == data_bytes ? nullptr : "the tensors cover the data";
}

}  // namespace ddp::safetensors::test
