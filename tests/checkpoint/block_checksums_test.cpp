#include "checkpoint/shards/block_checksums.h"

#include <stdexcept>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp::shards {
namespace {

using Catch::Matchers::ContainsSubstring;
using namespace std::string_literals;

const BlockChecksums kSome = {{"model-00001-of-00002.safetensors", {0, 0xffffffff, 0x01234567}},
                              {"model-00002-of-00002.safetensors", {}},
                              {"optim-adam_w.safetensors", {0x89abcdef}}};

std::string refusal_of_text(const std::string& text) {
  return test::error_of<std::invalid_argument>([&] { parse_block_checksums(text); });
}

// What comes before the first file.
std::string head() {
  return format_block_checksums({});
}

TEST_CASE("BlockChecksums: are parsed as they were formatted") {
  for (const auto& each : {BlockChecksums{}, kSome, BlockChecksums{{"a", {1}}}}) {
    CHECK(parse_block_checksums(format_block_checksums(each)) == each);
  }
  CHECK(format_block_checksums(kSome) == head() +
                                             "model-00001-of-00002.safetensors 00000000ffffffff01234567\n"
                                             "model-00002-of-00002.safetensors \n"
                                             "optim-adam_w.safetensors 89abcdef\n");
  BlockChecksums large;
  for (int i = 0; i < 1000; ++i) large["f" + std::to_string(i)] = std::vector<uint32_t>(100, static_cast<uint32_t>(i));
  CHECK(parse_block_checksums(format_block_checksums(large)) == large);
}

TEST_CASE("BlockChecksums: text that was truncated anywhere but between two lines is refused") {
  const auto text = format_block_checksums(kSome);
  for (size_t size = 0; size < text.size(); ++size) {
    INFO(size);
    const auto part = text.substr(0, size);
    if (part.ends_with('\n') && size >= head().size()) continue;
    CHECK_THAT(refusal_of_text(part), ContainsSubstring("block-checksums.txt"));
  }
}

TEST_CASE("BlockChecksums: text is accepted only as it would be formatted") {
  for (const auto& lines : {"a 0000000g\n"s,
                            "a 0000000 \n"s,
                            "a -0000001\n"s,
                            "a +0000001\n"s,
                            "a 0x000001\n"s,
                            "a 000000ABCDEF0123\n"s,
                            "a 0000001\n"s,
                            "a\n"s,
                            " 00000000\n"s,
                            "\n"s,
                            "a  00000000\n"s,
                            "a 00000000 \n"s,
                            "a 00000000\r\n"s,
                            "../a 00000000\n"s,
                            ".a 00000000\n"s,
                            "a/b 00000000\n"s,
                            "MANIFEST.json 00000000\n"s,
                            "a b 00000000\n"s,
                            "a\0b 00000000\n"s,
                            "a 0000\0000\n"s,
                            "a ABCDEF01\n"s}) {
    INFO(lines);
    CHECK_THAT(refusal_of_text(head() + lines), ContainsSubstring("block-checksums.txt"));
  }
  CHECK_THAT(refusal_of_text(""), ContainsSubstring("does not begin"));
  CHECK_THAT(refusal_of_text("x" + head()), ContainsSubstring("does not begin"));
}

TEST_CASE("BlockChecksums: a file that is named twice is refused, whatever blocks it has") {
  CHECK_THAT(refusal_of_text(head() + "a 00000001\na 00000001\n"), ContainsSubstring("a twice"));
  CHECK_THAT(refusal_of_text(head() + "a \na 00000001\n"), ContainsSubstring("a twice"));
  CHECK_THAT(refusal_of_text(head() + "a \na \n"), ContainsSubstring("a twice"));
}

TEST_CASE("BlockChecksums: files are in order") {
  CHECK_THAT(refusal_of_text(head() + "b 00000001\na 00000001\n"), ContainsSubstring("block-checksums.txt"));
}

TEST_CASE("BlockChecksums: a name that could not be read back is refused") {
  for (const auto& name : {""s, "a b"s, "a\nb"s, "../a"s}) {
    CHECK_THROWS_AS(format_block_checksums({{name, {1}}}), std::invalid_argument);
  }
}

}  // namespace
}  // namespace ddp::shards
