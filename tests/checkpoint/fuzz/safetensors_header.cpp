// Headers of safetensors files. The first two bytes are how much data follows the header; with both 0 the rest is a
// file, length and data included.
#include "checkpoint/safetensors_header.h"

#include <set>

#include "tests/fuzz/fuzz.h"

namespace {

using namespace ddp::safetensors;
using fuzz::require;

void check_promises(const Header& header, std::uint64_t data_bytes) {
  std::uint64_t position = 0;
  std::set<std::string> names;
  for (const auto& tensor : header.tensors) {
    require(names.insert(tensor.name).second, "names are unique");
    require(tensor.begin == position, "there is no hole and no overlap");
    std::uint64_t bytes = dtype_bytes(tensor.dtype);
    for (const auto size : tensor.shape) bytes *= static_cast<std::uint64_t>(size);
    require(tensor.end - tensor.begin == bytes, "a range is as long as dtype and shape ask");
    position = tensor.end;
  }
  require(position == data_bytes, "the tensors cover the data");
}

void check_round_trip(const Header& header, std::uint64_t data_bytes) {
  const std::string text = format_header(header);
  const Header again = parse_header(std::string_view(text).substr(kLengthBytes), data_bytes);
  require(again.metadata == header.metadata && again.tensors.size() == header.tensors.size(), "nothing is lost");
  require(format_header(again) == text, "what was read is written and read again");
}

std::string example(std::uint64_t& data_bytes) {
  Header header;
  header.metadata = {{"epoch", "12"}, {"note", "a \"quoted\" wörd"}};
  header.tensors = {{.name = "conv.weight", .dtype = DType::kF32, .shape = {4, 1, 2, 2}},
                    {.name = "conv.bias", .dtype = DType::kF32, .shape = {3, 3}},
                    {.name = "bn.num_batches_tracked", .dtype = DType::kI64, .shape = {}},
                    {.name = "mask", .dtype = DType::kBool, .shape = {2, 3}},
                    {.name = "none", .dtype = DType::kBF16, .shape = {0, 7}}};
  assign_ranges(header.tensors);
  data_bytes = header.tensors.back().end;
  for (const auto& tensor : header.tensors) data_bytes = std::max(data_bytes, tensor.end);
  return format_header(header);
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  std::uint64_t data_bytes = 0;
  const std::string file = example(data_bytes);
  const std::string size = {static_cast<char>(data_bytes), static_cast<char>(data_bytes >> 8)};
  const std::string whole(2, '\0');
  const std::string one(1, '\1');
  // The last ones are pieces to be put into the others.
  return {whole + file + std::string(data_bytes, 'x'),
          size + file.substr(kLengthBytes),
          one + std::string(1, '\0') + R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          one + std::string(1, '\0') + R"({"a":{"shape":[1,1],"data_offsets":[0,1],"dtype":"I8"},"__metadata__":null})",
          one + R"(xx{}[],:"01-1 1e9 null true 9223372036854775807 18446744073709551615 \u0000 \ud800 "F8_E4M3" "C64")",
          one + R"(xx"dtype":"shape":"data_offsets":"__metadata__":{"a":"b"})"};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes);
  const std::uint8_t low = input.byte();
  std::uint64_t data_bytes = low | std::uint64_t{input.byte()} << 8;
  std::string_view json = input.rest();
  try {
    if (data_bytes == 0) {
      const std::string_view file = json;
      const std::uint64_t length = parse_header_length(file, file.size());
      require(length <= file.size() - kLengthBytes, "the header lies within the file");
      json = file.substr(kLengthBytes, length);
      data_bytes = file.size() - kLengthBytes - length;
    }
    const Header header = parse_header(json, data_bytes);
    check_promises(header, data_bytes);
    check_round_trip(header, data_bytes);
    return Outcome::kAccepted;
  } catch (const FormatError& error) {
    require(*error.what() != '\0', "a refusal says why");
    return Outcome::kRefused;
  }
}
