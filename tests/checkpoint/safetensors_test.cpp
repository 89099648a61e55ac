#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <ddprun/checkpoint/safetensors.h>

#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::UnorderedRangeEquals;
using test::error_of;
using test::read_file;
using test::write_file;

constexpr at::ScalarType kAllTypes[] = {
    at::kBool,   at::kByte,   at::kChar,  at::kFloat8_e5m2,     at::kFloat8_e4m3fn,   at::kFloat8_e8m0fnu,
    at::kShort,  at::kUInt16, at::kHalf,  at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz, at::kBFloat16,
    at::kInt,    at::kUInt32, at::kFloat, at::kComplexFloat,    at::kDouble,          at::kLong,
    at::kUInt64,
};

// Any bytes are a value of any type but bool, NaN included.
at::Tensor random_tensor(at::ScalarType type, at::IntArrayRef shape, unsigned seed) {
  auto tensor = at::empty(shape, type);
  std::mt19937 random(seed);
  auto* bytes = static_cast<uint8_t*>(tensor.mutable_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i)
    bytes[i] = static_cast<uint8_t>(type == at::kBool ? random() % 2 : random());
  return tensor;
}

std::string bytes_of(const at::Tensor& tensor) {
  const auto flat = tensor.contiguous();
  return {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()};
}

void expect_same(const at::Tensor& actual, const at::Tensor& expected, const std::string& name) {
  INFO(name);
  CHECK(actual.scalar_type() == expected.scalar_type());
  CHECK(actual.sizes() == expected.sizes());
  CHECK(bytes_of(actual) == bytes_of(expected.resolve_conj().resolve_neg()));
}

TensorMap every_dtype_and_shape() {
  TensorMap tensors;
  unsigned seed = 0;
  for (const auto type : kAllTypes) {
    for (const auto& shape : std::vector<std::vector<int64_t>>{{}, {0}, {3, 0, 2}, {5}, {2, 3, 4}}) {
      std::ostringstream name;
      name << c10::toString(type) << "." << at::IntArrayRef(shape);
      tensors[name.str()] = random_tensor(type, shape, ++seed);
    }
  }
  return tensors;
}

TEST_CASE("Safetensors: every dtype and shape comes back with the same bits") {
  const test::TemporaryFolder folder;
  const auto tensors = every_dtype_and_shape();
  save_safetensors(folder / "file", tensors, {{"epoch", "3"}});
  const auto loaded = load_safetensors(folder / "file");
  REQUIRE(loaded.size() == tensors.size());
  for (const auto& [name, tensor] : tensors) expect_same(loaded.at(name), tensor, name);
  CHECK(SafetensorsFile(folder / "file").header().metadata == Metadata{{"epoch", "3"}});
}

TEST_CASE("Safetensors: views are stored as they look") {
  const test::TemporaryFolder folder;
  const auto base = at::arange(120, at::kFloat).view({2, 3, 4, 5});
  const TensorMap tensors = {
      {"base", base},
      {"transposed", base.transpose(0, 3)},
      {"slice", base.slice(3, 1, 5, 2)},
      {"tail", base.view(-1).narrow(0, 100, 20)},
      {"expanded", at::arange(3, at::kLong).unsqueeze(0).expand({4, 3})},
      {"channels_last", base.contiguous(at::MemoryFormat::ChannelsLast)},
      {"conjugated", at::complex(base, base + 1).conj()},
      {"negated", at::imag(at::complex(base, base + 1).conj())},
      {"needs_grad", at::ones({3}).requires_grad_()},
  };
  REQUIRE(tensors.at("conjugated").is_conj());
  REQUIRE(tensors.at("negated").is_neg());
  save_safetensors(folder / "file", tensors);
  const auto loaded = load_safetensors(folder / "file");
  REQUIRE(loaded.size() == tensors.size());
  for (const auto& [name, tensor] : tensors) expect_same(loaded.at(name), tensor.detach(), name);
}

TEST_CASE("Safetensors: tied weights are written once") {
  const test::TemporaryFolder folder;
  const auto weight = at::arange(1000, at::kFloat);
  save_safetensors(folder / "file", {{"decoder", weight},
                                     {"encoder", weight.detach()},
                                     {"half", weight.narrow(0, 0, 500)},
                                     {"reshaped", weight.view({10, 100})},
                                     {"empty1", at::empty({0})},
                                     {"empty2", at::empty({0})}});
  const SafetensorsFile file(folder / "file");
  CHECK(file.header().metadata == Metadata{{"encoder", "decoder"}});
  UNSCOPED_INFO("only the same memory seen the same way is one tensor");
  CHECK(file.header().tensors.size() == 5);
  CHECK_THROWS_WITH(save_safetensors(folder / "file", {{"a", weight}, {"b", weight}}, {{"b", "mine"}}),
                    ContainsSubstring("metadata 'b' has the name of a tensor that shares memory with 'a'"));
}

TEST_CASE("Safetensors: what the format cannot hold is refused before a file exists") {
  const test::TemporaryFolder folder;
  const auto refusal = [&](const at::Tensor& tensor, const std::string& name = "layer.weight") {
    return error_of([&] { save_safetensors(folder / "file", {{name, tensor}}); });
  };
  CHECK_THAT(refusal(at::Tensor()),
             ContainsSubstring("'layer.weight' cannot be stored in a safetensors file: it is undefined"));
  CHECK_THAT(refusal(at::zeros({2, 2}).to_sparse()), ContainsSubstring("to_dense()"));
  CHECK_THAT(refusal(at::zeros({2}, at::kComplexDouble)), ContainsSubstring("no dtype for ComplexDouble"));
  CHECK_THAT(refusal(at::empty({2}, at::TensorOptions(at::kMeta))), ContainsSubstring("meta device"));
  CHECK_THAT(refusal(at::quantize_per_tensor(at::zeros({2}), 0.1, 0, at::kQInt8)), ContainsSubstring("quantized"));
  CHECK_THAT(refusal(at::zeros({2}), "bad\xff"), ContainsSubstring("UTF-8"));
  CHECK(folder.is_empty());
}

TEST_CASE("Safetensors: what is no file is refused by name") {
  const test::TemporaryFolder folder;
  CHECK_THROWS_WITH([&] { SafetensorsFile file(folder / "absent"); }(),
                    ContainsSubstring((folder / "absent").string()) && ContainsSubstring("No such file"));
  CHECK_THROWS_WITH([&] { SafetensorsFile file(folder / ""); }(), ContainsSubstring("expected a regular file"));
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH([&] { SafetensorsFile file(folder / "pipe"); }(), ContainsSubstring("expected a regular file"));
  for (const std::string name : {"text", "text.safetensors"}) {
    write_file(folder / name, "hello, this is not a checkpoint");
    const auto* expected = name == "text" ? " cannot be read as a .pt or safetensors file: it is text that begins with"
                                          : " is not a valid safetensors file: it is text that begins with";
    CHECK_THROWS_WITH([&] { SafetensorsFile file(folder / name); }(),
                      ContainsSubstring((folder / name).string() + expected));
  }
}

TensorMap small_model() {
  return {{"conv.weight", random_tensor(at::kFloat, {4, 3, 3, 3}, 1)},
          {"conv.bias", random_tensor(at::kFloat, {4}, 2)},
          {"bn.num_batches_tracked", random_tensor(at::kLong, {}, 3)},
          {"mask", random_tensor(at::kBool, {7}, 4)}};
}

TEST_CASE("Safetensors: a file truncated anywhere is refused") {
  const test::TemporaryFolder folder;
  save_safetensors(folder / "whole", small_model(), {{"epoch", "1"}});
  const auto bytes = read_file(folder / "whole");
  for (size_t size = 0; size < bytes.size(); ++size) {
    write_file(folder / "cut", bytes.substr(0, size));
    INFO(size);
    REQUIRE_THROWS_WITH(load_safetensors(folder / "cut"), ContainsSubstring((folder / "cut").string()));
  }
  write_file(folder / "longer", bytes + "x");
  CHECK_THROWS_WITH(load_safetensors(folder / "longer"), ContainsSubstring("but the file has"));
}

TEST_CASE("Safetensors: a file that shrinks while it is read is an error") {
  const test::TemporaryFolder folder;
  save_safetensors(folder / "file", small_model());
  const SafetensorsFile file(folder / "file");
  std::filesystem::resize_file(folder / "file", 100);
  CHECK_THROWS_WITH(file.read(file.header().tensors.back()), ContainsSubstring("became shorter"));
}

TEST_CASE("Safetensors: a bool other than zero and one is refused") {
  const test::TemporaryFolder folder;
  save_safetensors(folder / "file", small_model());
  auto bytes = read_file(folder / "file");
  bytes.back() = 2;  // the writer puts BOOL last
  write_file(folder / "file", bytes);
  CHECK_THROWS_WITH(load_safetensors(folder / "file"), ContainsSubstring("BOOL tensor 'mask'"));
}

TEST_CASE("Safetensors: damaged files never crash or change size") {
  const test::TemporaryFolder folder;
  save_safetensors(folder / "whole", small_model(), {{"epoch", "1"}});
  const auto whole = read_file(folder / "whole");
  std::mt19937_64 random(1);
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    auto bytes = whole;
    for (size_t edits = 1 + below(3); edits > 0; --edits) {
      const auto at = below(bytes.size());
      switch (below(4)) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[below(16)] ^= static_cast<char>(1 << below(8));
          break;
        case 2:
          bytes.erase(at, 1 + below(9));
          break;
        default:
          bytes.insert(at, std::string(1 + below(9), static_cast<char>('0' + below(10))));
      }
    }
    write_file(folder / "damaged", bytes);
    try {
      size_t read = 0;
      for (const auto& [name, tensor] : load_safetensors(folder / "damaged")) read += tensor.nbytes();
      REQUIRE(read <= bytes.size());
    } catch (const std::runtime_error& error) {
      ++refused;
      REQUIRE_THAT(error.what(), ContainsSubstring("damaged"));
    }
  }
  CHECK(refused > 1000);
}

// Runs safetensors_python.py and returns what it prints.
std::string python(const std::string& mode, const std::filesystem::path& file) {
  const auto result = test::ChildProcess({.arguments = {PYTHON_EXECUTABLE, SAFETENSORS_PYTHON, mode, file.string()}})
                          .wait(std::chrono::minutes(2));
  return result.status == 0 ? result.output : mode + " failed: " + result.output + result.errors;
}

TEST_CASE("Safetensors: Python reads what we write") {
  const test::TemporaryFolder folder;
  const auto tensors = every_dtype_and_shape();
  save_safetensors(folder / "file", tensors, {{"epoch", "3"}});
  std::ostringstream expected;
  const SafetensorsFile file(folder / "file");
  std::map<std::string, const safetensors::TensorEntry*> entries;
  for (const auto& entry : file.header().tensors) entries[entry.name] = &entry;
  for (const auto& [name, tensor] : tensors) {
    expected << name << " " << safetensors::dtype_name(entries.at(name)->dtype) << " [";
    for (int64_t i = 0; i < tensor.dim(); ++i) expected << (i > 0 ? ", " : "") << tensor.size(i);
    expected << "] ";
    for (const char byte : bytes_of(tensor)) {
      char text[3];
      std::snprintf(text, sizeof(text), "%02x", static_cast<unsigned char>(byte));
      expected << text;
    }
    expected << "\n";
  }
  // Names hold a blank-free shape such as "Float.[2, 3, 4]": compare without blanks.
  const auto strip = [](std::string text) {
    std::erase(text, ' ');
    return text;
  };
  std::vector<std::string> ours, theirs;
  std::istringstream our_lines(strip(expected.str())), their_lines(strip(python("read", folder / "file")));
  for (std::string line; std::getline(our_lines, line);) ours.push_back(line);
  for (std::string line; std::getline(their_lines, line);) theirs.push_back(line);
  CHECK_THAT(theirs, UnorderedRangeEquals(ours));
}

TEST_CASE("Safetensors: we read what Python writes") {
  const test::TemporaryFolder folder;
  REQUIRE(python("write", folder / "file") == "");
  const auto tensors = load_safetensors(folder / "file");
  REQUIRE(tensors.size() == 4);
  CHECK(tensors.at("short").equal(at::tensor({-1, 515}, at::kShort).view({2, 1})));
  CHECK(tensors.at("float").equal(at::tensor({1.5F, -2.0F, 0.25F})));
  CHECK(tensors.at("scalar").equal(at::scalar_tensor(int64_t{1} << 40, at::kLong)));
  CHECK(tensors.at("empty").sizes() == std::vector<int64_t>{0, 3});
}

}  // namespace
}  // namespace ddp
