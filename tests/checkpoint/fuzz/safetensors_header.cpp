// Headers of safetensors files. The first two bytes are how much data follows the header; with both 0 the rest is a
// file, length and data included.
#include "tests/checkpoint/safetensors_headers.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace ddp::safetensors;
using fuzz::require;

void check_round_trip(const Header& header, std::uint64_t data_bytes) {
  const std::string text = format_header(header);
  const Header again = parse_header(std::string_view(text).substr(kLengthBytes), data_bytes);
  require(again.metadata == header.metadata && again.tensors.size() == header.tensors.size(), "nothing is lost");
  require(format_header(again) == text, "what was read is written and read again");
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  const std::string file = test::example_header();
  const std::uint64_t data_bytes = test::kExampleDataBytes;
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
    const char* broken = test::broken_promise(header, data_bytes);
    require(broken == nullptr, broken);
    check_round_trip(header, data_bytes);
    return Outcome::kAccepted;
  } catch (const FormatError& error) {
    require(*error.what() != '\0', "a refusal says why");
    return Outcome::kRefused;
  }
}
