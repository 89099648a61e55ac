// Which bytes of a .pt file are a tensor's: against plain arithmetic over random views of random storages, and files
// whose parts are missing, repeated, too small or of another kind.
#include "checkpoint/pt/pt_file.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/elements.h"
#include "checkpoint/pt/format_error.h"
#include "checkpoint/pt/pickler.h"
#include "tests/checkpoint/legacy_forms.h"
#include "tests/checkpoint/text_sink.h"
#include "tests/checkpoint/zip_forms.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp::pt {
namespace {

using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;
using test::error_of;

// {'w': entry}
std::string pickle_of(const TensorEntry& entry = {.storage = "0", .dtype = "float32", .sizes = {2}, .strides = {1}}) {
  Pickler pickler;
  pickler.begin_dict();
  pickler.text("w");
  pickler.tensor(entry, 1);
  pickler.end_dict();
  return pickler.take();
}

PtFile open_file(const std::string& bytes) {
  return {storage::own_bytes(bytes), "some/file.pt"};
}

std::string file_refusal(const std::string& bytes) {
  return error_of<std::runtime_error>([&] { open_file(bytes); });
}

// The file of an archiver.
std::string file_of(const std::vector<test::ArchiveEntry>& entries) {
  return test::archive(entries);
}

std::string_view pt_bytes(const PtFile& file) {
  return file.bytes_of(file.root().find("w")->tensor());
}

TEST_CASE("PtFile: a tensor's bytes are those from its first element to its last, whatever the view") {
  std::mt19937 random(7);
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random() % static_cast<uint64_t>(bound)); };
  const std::vector<std::string> dtypes{"float64", "float32", "float16",    "int64",
                                        "uint8",   "bool",    "complex128", "uint16"};
  int refused = 0, read = 0, empty = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto& dtype = dtypes[random() % dtypes.size()];
    const auto element = dtype_by_name(dtype)->bytes;
    std::string storage(element * static_cast<size_t>(below(40)), '\0');
    std::ranges::generate(storage, [&] { return static_cast<char>(random()); });
    TensorEntry entry{.storage = "k", .dtype = dtype, .offset = below(6)};
    for (int64_t axis = below(4); axis > 0; --axis) {
      entry.sizes.push_back(below(10) == 0 ? 0 : 1 + below(4));
      entry.strides.push_back(below(8));
    }
    // Every index, the last axis first to turn.
    std::vector<int64_t> positions{entry.offset};
    for (size_t axis = 0; axis < entry.sizes.size(); ++axis) {
      std::vector<int64_t> next;
      for (const auto position : positions) {
        for (int64_t i = 0; i < entry.sizes[axis]; ++i) next.push_back(position + i * entry.strides[axis]);
      }
      positions = next;
    }
    std::string expected;
    bool fits = true;
    for (const auto position : positions) {
      const auto begin = static_cast<size_t>(position) * element;
      fits = fits && begin + element <= storage.size();
      if (fits) expected += storage.substr(begin, element);
    }
    const auto file =
        open_file(file_of({{.name = "f/data.pkl", .data = pickle_of(entry)}, {.name = "f/data/k", .data = storage}}));
    const auto& tensor = file.root().find("w")->tensor();
    CAPTURE(round, dtype, entry.offset, entry.sizes, entry.strides, storage.size());
    if (!fits) {
      ++refused;
      CHECK_THROWS_AS(file.bytes_of(tensor), FormatError);
      continue;
    }
    ++(expected.empty() ? empty : read);
    REQUIRE(gather_elements(tensor, file.bytes_of(tensor)) == expected);
    const auto bytes = file.bytes_of(tensor);
    if (is_plain(tensor)) REQUIRE(bytes == expected);
  }
  CHECK(std::min({refused, read, empty}) > 100);
}

TEST_CASE("PtFile: tensors of several dtypes and places share a storage") {
  Pickler pickler;
  pickler.begin_dict();
  const std::vector<std::pair<const char*, TensorEntry>> tensors{
      {"shorts", {.storage = "0", .dtype = "uint16", .offset = 1, .sizes = {2}, .strides = {1}}},
      {"bytes", {.storage = "0", .dtype = "float8_e5m2", .offset = 0, .sizes = {8}, .strides = {1}}},
      {"words", {.storage = "0", .dtype = "uint32", .offset = 1, .sizes = {}, .strides = {}}}};
  for (const auto& [name, entry] : tensors) {
    pickler.text(name);
    pickler.tensor(entry, 8);
  }
  pickler.end_dict();
  const auto file =
      open_file(file_of({{.name = "a/data.pkl", .data = pickler.take()}, {.name = "a/data/0", .data = "abcdefgh"}}));
  const auto of = [&](const char* name) { return file.bytes_of(file.root().find(name)->tensor()); };
  CHECK(of("shorts") == "cdef");
  CHECK(of("bytes") == "abcdefgh");
  CHECK(of("words") == "efgh");
  CHECK(of("shorts").data() == of("bytes").data() + 2);
}

TEST_CASE("PtFile: numbers that overflow describe no tensor") {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const TensorEntry& entry : std::vector<TensorEntry>{
           {.offset = kMax, .sizes = {1}, .strides = {1}},
           {.offset = kMax, .sizes = {}, .strides = {}},
           {.sizes = {kMax}, .strides = {1}},
           {.sizes = {2}, .strides = {kMax}},
           {.sizes = {3, 3}, .strides = {kMax, kMax}},
           {.sizes = {kMax, kMax}, .strides = {0, 0}},
           {.offset = 2, .sizes = {2}, .strides = {1}},
           {.offset = 3, .sizes = {}, .strides = {}},
       }) {
    auto whole = entry;
    whole.storage = "0";
    whole.dtype = "float32";
    const auto file = open_file(file_of(
        {{.name = "a/data.pkl", .data = pickle_of(whole)}, {.name = "a/data/0", .data = std::string(12, 'x')}}));
    CAPTURE(entry.offset, entry.sizes, entry.strides);
    CHECK_THROWS_AS(pt_bytes(file), FormatError);
  }
  UNSCOPED_INFO("nothing is read of an empty one, wherever it begins");
  const auto nothing = open_file(file_of(
      {{.name = "a/data.pkl",
        .data = pickle_of({.storage = "0", .dtype = "float32", .offset = kMax, .sizes = {0, 3}, .strides = {9, 9}})},
       {.name = "a/data/0", .data = ""}}));
  CHECK(pt_bytes(nothing).empty());
}

TEST_CASE("PtFile: the message names the file, and what of it is missing or too small") {
  const test::ArchiveEntry pickle{.name = "a/data.pkl", .data = pickle_of()};
  const auto missing =
      open_file(file_of({pickle, {.name = "a/data/1", .data = "12345678"}, {.name = "b/data/0", .data = "12345678"}}));
  CHECK_THROWS_WITH(pt_bytes(missing), "a tensor's storage '0' is missing");
  const auto small = open_file(file_of({pickle, {.name = "a/data/0", .data = "1234567"}}));
  CHECK_THROWS_WITH(pt_bytes(small), "a tensor needs elements 0 to 2 of a storage of 1");
  CHECK_THROWS_WITH(small.bytes_of({.storage = "0", .dtype = "float33"}), "a tensor has the unknown dtype 'float33'");
  const auto prefix = "some/file.pt cannot be read as a .pt file: "s;
  const auto no_pickle = prefix + "it is a zip file without a data.pkl, as torch.save writes one";
  UNSCOPED_INFO("deeper ones belong to something else");
  for (const auto* name : {"a/other.pkl", "data.pkl", "a/b/data.pkl"}) {
    CHECK(file_refusal(file_of({{.name = name, .data = pickle_of()}})) ==
          no_pickle + ": it begins with '" + name + "'; unpack it first, if it holds the file");
  }
  CHECK_THAT(file_refusal(file_of({{.name = "a.npy", .data = "x"}, {.name = "b.npy", .data = "x"}})),
             ContainsSubstring("archive of NumPy (.npz)"));
  CHECK(file_refusal(file_of({pickle, {.name = "b/data.pkl", .data = pickle_of()}})) ==
        prefix + "it holds two pickles named data.pkl");
  CHECK_THAT(file_refusal(file_of({{.name = "a/data.pkl", .data = "cos\nsystem\nNR"}})),
             ContainsSubstring(prefix + "the pickle is refused at byte 12: it is truncated"));
  for (const auto* other : {"", "P", "PK\3", "safetensors"}) {
    CHECK_FALSE(looks_like_pt(other));
    CHECK_THAT(file_refusal(other), ContainsSubstring(prefix));
  }
  CHECK_THAT(file_refusal("PK\3\4"), ContainsSubstring(prefix));
}

TEST_CASE("PtFile: numbers are little-endian, which an entry may say") {
  const test::ArchiveEntry pickle{.name = "a/data.pkl", .data = pickle_of()},
      data{.name = "a/data/0", .data = "12345678"};
  for (const bool packed : {false, true}) {
    const auto order = [&](const std::string& text) {
      return file_of(
          {pickle, data, {.name = "a/byteorder", .data = text, .deflated = packed ? test::deflate_block(text) : ""}});
    };
    CHECK(pt_bytes(open_file(order("little"))) == "12345678");
    CHECK_THAT(file_refusal(order("big")), ContainsSubstring("its numbers are big-endian"));
  }
  UNSCOPED_INFO("another folder's says nothing");
  CHECK_NOTHROW(open_file(file_of({pickle, data, {.name = "b/byteorder", .data = "big"}})));
}

TEST_CASE("PtFile: what is packed is unpacked, once, and stays where it is") {
  const auto text = pickle_of();
  const auto file =
      open_file(file_of({{.name = "a/data.pkl", .data = text, .deflated = test::deflate_block(text)},
                         {.name = "a/data/0", .data = "12345678", .deflated = test::deflate_block("12345678")}}));
  const auto first = pt_bytes(file);
  CHECK(first == "12345678");
  CHECK(pt_bytes(file).data() == first.data());
  CHECK(file.has_checksums());
}

TEST_CASE("PtFile: the bytes live as long as their owner") {
  std::shared_ptr<void> owner;
  std::string_view bytes;
  {
    const auto file =
        open_file(file_of({{.name = "a/data.pkl", .data = pickle_of()}, {.name = "a/data/0", .data = "12345678"}}));
    owner = file.owner();
    bytes = pt_bytes(file);
    CHECK(file.path() == "some/file.pt");
  }
  CHECK(bytes == "12345678");
}

TEST_CASE("PtFile: checksums are compared where the writer computed them") {
  for (const bool has_checksums : {true, false}) {
    test::TextSink sink;
    test::TorchZip zip(sink, has_checksums);
    zip.add("a/data.pkl", pickle_of());
    zip.add("a/data/0", "12345678");
    zip.finish();
    CHECK(open_file(sink.text).has_checksums() == has_checksums);
    auto damaged = sink.text;
    damaged[damaged.find("12345678")] = 'X';
    if (has_checksums) {
      CHECK_THAT(file_refusal(damaged), ContainsSubstring("a/data/0"));
    } else {
      CHECK(pt_bytes(open_file(damaged)) == "X2345678");
    }
  }
  CHECK_FALSE(open_file(test::legacy_file()).has_checksums());
}

}  // namespace
}  // namespace ddp::pt
