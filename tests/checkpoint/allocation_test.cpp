// Readers of hostile files allocate no more than the file justifies: the peak of all allocations is measured.
#include <malloc.h>

#include <cstdlib>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/pt/pickler.h"
#include "checkpoint/pt/pt_file.h"
#include "checkpoint/pt/pt_writer.h"
#include "checkpoint/pt/state_dict.h"
#include "checkpoint/pt/unpickler.h"
#include "checkpoint/storage/manifest.h"
#include "tests/checkpoint/deflated.h"
#include "tests/checkpoint/text_sink.h"
#include "tests/checkpoint/zip_forms.h"
#include "tests/support/catch.h"

namespace {

using Catch::Matchers::ContainsSubstring;

size_t allocated = 0;
size_t peak = 0;

void* count_and_allocate(size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  allocated += ::malloc_usable_size(memory);
  peak = std::max(peak, allocated);
  return memory;
}

void count_and_free(void* memory) {
  if (memory != nullptr) allocated -= ::malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(size_t size) {
  return count_and_allocate(size);
}
void* operator new[](size_t size) {
  return count_and_allocate(size);
}
void operator delete(void* memory) noexcept {
  count_and_free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  count_and_free(memory);
}
void operator delete[](void* memory) noexcept {
  count_and_free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  count_and_free(memory);
}

namespace ddp {
namespace {

using namespace std::string_literals;

// Bytes allocated at the worst moment of `read(text)`, in multiples of the text.
template <typename Read>
double cost(const std::string& text, Read&& read) {
  const auto before = allocated;
  peak = allocated;
  try {
    read(text);
  } catch (const std::exception&) {
  }
  return static_cast<double>(peak - before) / static_cast<double>(text.size());
}

std::string repeated(const std::string& front, const std::string& piece, size_t count, const std::string& end) {
  std::string text = front;
  for (size_t i = 0; i < count; ++i) text += piece;
  return text + end;
}

TEST_CASE("Allocation: parsing a safetensors header takes at most sixteen times its size") {
  const auto parse = [](const std::string& text) { safetensors::parse_header(text, 0); };
  const std::string digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string tensors = "{", metadata = "{\"__metadata__\":{";
  for (size_t i = 0; i < 60'000; ++i) {
    std::string name;
    for (auto rest = i; name.empty() || rest > 0; rest /= digits.size()) name += digits[rest % digits.size()];
    std::string comma = i > 0 ? "," : "";
    tensors += comma + "\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
    metadata += comma + "\"" + name + "\":\"\"";
  }
  CHECK(cost(tensors + "}", parse) <= 16);
  CHECK(cost(metadata + "}}", parse) <= 16);
  CHECK(cost(repeated("{\"a\":{\"shape\":[", "0,", 500'000, "0]}}"), parse) <= 16);
  CHECK(cost(repeated("{\"a\":", "[", 1'000'000, ""), parse) <= 16);
  CHECK(cost(repeated("{\"a\":", "{\"a\":", 300'000, ""), parse) <= 16);
  CHECK(cost(repeated("{\"", "a", 1'000'000, "\":1}"), parse) <= 16);
  CHECK(cost(repeated("{\"__metadata__\":{\"a\":\"", "\\u00e9", 200'000, "\"}}"), parse) <= 16);
}

TEST_CASE("Allocation: parsing a manifest takes at most sixteen times its size") {
  storage::Manifest manifest;
  for (int i = 0; i < 9'000; ++i) {
    std::string name = "f";
    name += std::to_string(i);
    manifest.files[name] = {.size = 1, .crc32c = 2};
  }
  CHECK(cost(storage::format_manifest(manifest), [](const std::string& text) { storage::parse_manifest(text); }) <= 16);
}

// A pickle's opcodes are single bytes, and each may make a value: the factor is larger, but it is a factor.
TEST_CASE("Allocation: a pickle takes memory in proportion to its size") {
  const auto read = [](const std::string& text) { pt::unpickle(text); };
  for (const auto& opcode : {"N"s, "]"s, "}"s, ")"s, "("s, "K\1"s, "X\0\0\0\0"s, "]q\1"s, "N\x85"s, "(t"s, "c\n\n"s,
                             "\x8c\0"s, "Nr\1\2\3\4"s}) {
    INFO(opcode);
    CHECK(cost(repeated("\x80\2", opcode, 300'000, "."), read) <= 64);
  }
  const std::string name("c\n\nq\0", 5);
  CHECK(cost(repeated("\x80\2" + name, std::string("h\0)R", 4), 300'000, "."), read) <= 64);
  std::string far = "\x80\2N", near = far;
  for (uint32_t i = 1; i < 100'000; ++i) {
    const uint32_t number = i * 42'949;
    far += "r" + std::string(reinterpret_cast<const char*>(&number), sizeof(number));
    near += "\x94";
  }
  UNSCOPED_INFO("what is remembered under numbers far from each other, and next to each other");
  CHECK(cost(far, read) <= 64);
  CHECK(cost(near, read) <= 64);
  UNSCOPED_INFO("a length that is not there");
  CHECK(cost(std::string("\x80\2X\xff\xff\xff\x7f", 7), read) * 7 <= 16'384);
  INFO("a number that is not there");
  CHECK(cost(std::string("\x80\2Nr\xff\xff\xff\x7f", 8), read) * 8 <= 16'384);
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

// `text` as the entry `name` of a zip file, packed, beside an empty pickle unless it is one.
std::string packed_pt(const std::string& name, const std::string& text) {
  std::vector<test::ArchiveEntry> entries = {{.name = name, .data = text, .deflated = test::deflated(text)}};
  if (name != "a/data.pkl") entries.push_back({.name = "a/data.pkl", .data = "\x80\2}."});
  return test::archive(entries);
}

TEST_CASE("Allocation: what is packed in a .pt file takes no more memory than a file of its size may") {
  const auto read = [](const std::string& file) { pt::PtFile({.owner = nullptr, .view = file}, "a.pt"); };
  const auto megabytes = [&](const std::string& file) {
    REQUIRE(file.size() < 100'000);
    return cost(file, read) * static_cast<double>(file.size()) / 1e6;
  };
  CHECK(megabytes(packed_pt("a/data.pkl", repeated("\x80\2](", "]", 20'000'000, "e."))) <= 64);
  CHECK(megabytes(packed_pt("a/data.pkl", repeated("\x80\2](", "]", 999'000, "e."))) <= 64);
  CHECK(megabytes(packed_pt("a/byteorder", std::string(80'000'000, 'l'))) <= 64);
  CHECK(megabytes(packed_pt("a/data/0", std::string(80'000'000, 'l'))) <= 64);
}

// A file with a tensor of float32 whose storage has `bytes` zeros, packed.
std::string packed_tensor(const pt::TensorEntry& tensor, size_t bytes) {
  pt::Pickler pickler;
  pickler.begin_dict();
  pickler.text("w");
  pickler.tensor(tensor, static_cast<int64_t>(bytes / 4));
  pickler.end_dict();
  const std::string zeros(bytes, '\0');
  return test::archive({{.name = "a/data.pkl", .data = pickler.take()},
                        {.name = "a/data/0", .data = zeros, .deflated = test::deflated(zeros)}});
}

TEST_CASE("Allocation: a packed tensor of a .pt file takes its own bytes, and little is unpacked that nothing uses") {
  constexpr int64_t kElements = 20'000'000;
  const auto of = [](int64_t size, int64_t stride) {
    return pt::TensorEntry{.storage = "0", .dtype = "float32", .sizes = {size}, .strides = {stride}};
  };
  const auto read = [](const std::string& file) {
    const pt::PtFile opened({.owner = nullptr, .view = file}, "a.pt");
    opened.bytes_of(opened.root().find("w")->tensor());
  };
  const auto megabytes = [&](const std::string& file) {
    return cost(file, read) * static_cast<double>(file.size()) / 1e6;
  };
  const auto whole = packed_tensor(of(kElements, 1), 4 * kElements);
  REQUIRE(refusal([&] { read(whole); }) == "accepted");
  CHECK(megabytes(whole) <= 96);
  for (const auto& part : {of(1, 1), of(2, kElements - 1)}) {
    const auto file = packed_tensor(part, 4 * kElements);
    CHECK_THAT(refusal([&] { read(file); }), ContainsSubstring("bytes when unpacked, of which no tensor uses 79999"));
    CHECK(megabytes(file) <= 16);
  }
  CHECK(refusal([&] { read(packed_tensor(of(1, 1), kElements)); }) == "accepted");
}

TEST_CASE("Allocation: a .pt file that would be unpacked to more than 512 MiB and 128 times its size is refused") {
  auto file = test::archive(
      {{.name = "a/data.pkl", .data = "\x80\2}."},
       {.name = "a/data/0", .data = std::string(1'000'003, '\0'), .deflated = std::string(600'000, 'x')}});
  const auto bytes_of_size = [](uint32_t size) { return std::string(reinterpret_cast<const char*>(&size), 4); };
  const auto read = [&] { pt::PtFile({.owner = nullptr, .view = file}, "a.pt"); };
  REQUIRE_THAT(refusal(read), ContainsSubstring("damaged"));
  for (size_t at = 0; (at = file.find(bytes_of_size(1'000'003), at)) != std::string::npos;) {
    file.replace(at, 4, bytes_of_size((512U << 20) + 1));
  }
  CHECK_THAT(refusal(read), ContainsSubstring("bytes would be unpacked to more than 536870912"));
}

// What a pickle remembers can be used again in two bytes, so what copies it must be counted.
TEST_CASE("Allocation: copies of what a pickle remembers stay in proportion too") {
  const std::string text = "X\xa0\x86\x01\0"s + std::string(100'000, 'x') + "q\0"s;
  const std::string again = "h\2h\1R";
  const std::string cases[] = {
      repeated("\x80\2]q\0("s + repeated("", "K\1N\x86", 20'000, "") + "e\x85q\1ccollections\nOrderedDict\nq\2"s, again,
               20'000, "."),
      repeated("\x80\2}q\0("s + repeated("", "K\1N", 20'000, "") + "u\x85q\1ccollections\nCounter\nq\2"s, again, 20'000,
               "."),
      repeated("\x80\2"s + text + "X\6\0\0\0latin1\x86q\1c_codecs\nencode\nq\2"s, again, 20'000, "."),
      repeated("\x80\2"s + text + "(X\7\0\0\0storagectorch\nFloatStorage\nh\0NK\4tq\1"s, "h\1Q", 20'000, "."),
      repeated("\x80\2)q\0)q\1c__torch__."s + std::string(100'000, 'x') + "\nNet\nq\2"s, "h\2h\1\x81", 20'000, ".")};
  for (const auto& pickle : cases) {
    const auto read = [](const std::string& bytes) { pt::unpickle(bytes); };
    CHECK_THAT(refusal([&] { read(pickle); }), ContainsSubstring("contain each other"));
    CHECK(cost(pickle, read) <= 160);
  }
}

// Containers may hold each other, once or often: a few bytes can describe millions of tensors.
TEST_CASE("Allocation: a state dict that names the same values too often is refused") {
  const auto refused = [](const std::string& bytes) {
    const auto pickle = pt::unpickle(bytes);
    const auto before = allocated;
    peak = allocated;
    CHECK_THAT(refusal([&] { pt::find_state(pickle->root); }), ContainsSubstring("too often"));
    CHECK(peak - before <= size_t{64} << 20);
  };
  // A tensor, then dicts of which each holds the one before twice.
  std::string doubled =
      "\x80\2}(K\0ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
      "0X\3\0\0\0cpuK\4tQK\0))tRq\0"s;
  for (char level = 1; level <= 40; ++level) {
    const std::string before{'h', static_cast<char>(level - 1)};
    doubled +=
        std::string{'K', level} + "}(X\1\0\0\0a"s + before + "X\1\0\0\0b"s + before + std::string{'u', 'q', level};
  }
  refused(doubled + "u.");
  // One tensor under as many names as a megabyte has room for.
  std::string flat =
      "\x80\2}(ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
      "0X\3\0\0\0cpuK\4tQK\0))tRq\0K\0"s;
  for (int32_t name = 0; name < 140'000; ++name) {
    flat += "J" + std::string(reinterpret_cast<const char*>(&name), sizeof(name)) + "h\0"s;
  }
  refused(flat + "u.");
  // An optimizer with as many groups as each has parameters, all of them the same group.
  const std::string group = repeated("}(X\6\0\0\0params]("s, "K\1", 20'000, "euq\0"s);
  refused(repeated("\x80\2}(X\5\0\0\0state}X\x0c\0\0\0param_groups]("s + group, "h\0"s, 20'000, "eu."));
}

// Nested JSON is walked on the stack.
TEST_CASE("Allocation: an optimizer's description that is nested too deeply is refused") {
  test::TextSink sink;
  const std::string nested = repeated("{\"a\":", "[", 1'000'000, "") + std::string(1'000'000, ']') + "}";
  CHECK_THROWS_AS(pt::write_pt(sink, {.values = nested}), std::invalid_argument);
  CHECK_THROWS_AS(pt::write_pt(sink, {.optimizers = {{"", {.groups = nested}}}}), std::invalid_argument);
}

}  // namespace
}  // namespace ddp
