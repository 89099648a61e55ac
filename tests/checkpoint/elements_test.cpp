// Elements of tensors in their storages, against the plainest loop over all indices.
#include "checkpoint/pt/elements.h"

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/format_error.h"
#include "tests/support/catch.h"

namespace ddp::pt {
namespace {

using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::string by_indices(const TensorEntry& tensor, std::string_view bytes) {
  const auto element = dtype_by_name(tensor.dtype)->bytes;
  std::string result;
  std::vector<int64_t> index(tensor.sizes.size(), 0);
  for (const auto size : tensor.sizes) {
    if (size == 0) return result;
  }
  while (true) {
    size_t position = 0;
    for (size_t axis = 0; axis < index.size(); ++axis) {
      position += static_cast<size_t>(index[axis] * tensor.strides[axis]);
    }
    result += bytes.substr(position * element, element);
    size_t axis = index.size();
    while (axis > 0 && ++index[axis - 1] == tensor.sizes[axis - 1]) index[--axis] = 0;
    if (axis == 0) return result;
  }
}

std::string counted(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 37 + i / 256);
  return text;
}

TEST_CASE("Elements: any sizes and strides give what the indices say") {
  std::mt19937 random(11);
  const auto storage = counted(20'000);
  for (int round = 0; round < 3000; ++round) {
    TensorEntry tensor{.storage = "0", .dtype = round % 3 == 0 ? "int8" : round % 3 == 1 ? "int16" : "complex128"};
    for (auto axes = random() % 5; axes > 0; --axes) {
      tensor.sizes.push_back(random() % 5);
      tensor.strides.push_back(random() % 9);
    }
    const auto [count, extent] = count_elements(tensor);
    const auto expected = by_indices(tensor, storage);
    INFO("round " << round);
    const auto element = dtype_by_name(tensor.dtype)->bytes;
    REQUIRE(count * element == expected.size());
    REQUIRE(gathered_size(tensor) == expected.size());
    REQUIRE(extent * element <= storage.size());
    // Nothing behind the extent is read.
    REQUIRE((gather_elements(tensor, std::string(storage.substr(0, extent * element))) == expected));
    if (is_plain(tensor)) REQUIRE((storage.substr(0, expected.size()) == expected));
  }
}

TEST_CASE("Elements: a number is one element, and an empty tensor none wherever its axes point") {
  CHECK((count_elements({.dtype = "int8"}) == std::pair<uint64_t, uint64_t>{1, 1}));
  CHECK(gather_elements({.dtype = "int8"}, "x") == "x");
  const TensorEntry empty{.dtype = "int8", .sizes = {3, 0, 2}, .strides = {1, kMax / 64, 5}};
  CHECK((count_elements(empty) == std::pair<uint64_t, uint64_t>{0, 0}));
  CHECK(gather_elements(empty, "").empty());
}

TEST_CASE("Elements: numbers that overflow are refused, also where an axis is empty") {
  const std::vector<int64_t> sizes[] = {
      {kMax, 2}, {kMax}, {int64_t{1} << 32, int64_t{1} << 32}, {kMax, kMax, 0}, {kMax / 16 + 1}};
  for (const auto& each : sizes) {
    const TensorEntry tensor{.dtype = "int8", .sizes = each, .strides = std::vector<int64_t>(each.size(), 0)};
    CHECK_THROWS_AS(count_elements(tensor), FormatError);
  }
  CHECK_THROWS_AS(count_elements({.dtype = "int8", .sizes = {4}, .strides = {kMax}}), FormatError);
  CHECK_THROWS_AS(count_elements({.dtype = "int8", .sizes = {3, 3}, .strides = {kMax, kMax}}), FormatError);
}

TEST_CASE("Elements: rows are plain, and what is turned, marked or has gaps is not") {
  const auto plain = [](std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    return is_plain({.dtype = "int8", .sizes = std::move(sizes), .strides = std::move(strides)});
  };
  CHECK(plain({}, {}));
  CHECK(plain({2, 3}, {3, 1}));
  CHECK(plain({2, 1, 3}, {3, 77, 1}));
  CHECK(plain({1}, {5}));
  CHECK_FALSE(plain({2, 3}, {1, 2}));
  CHECK_FALSE(plain({2, 3}, {4, 1}));
  CHECK_FALSE(plain({2}, {0}));
  CHECK_FALSE(is_plain({.dtype = "float32", .sizes = {2}, .strides = {1}, .is_neg = true}));
  CHECK_FALSE(is_plain({.dtype = "complex64", .sizes = {2}, .strides = {1}, .is_conj = true}));
}

template <typename Number>
std::string element_bytes(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

TEST_CASE("Elements: negating changes every integer as PyTorch does, the smallest included") {
  const auto negated = [](const char* dtype, int64_t count, const std::string& bytes) {
    return gather_elements({.dtype = dtype, .sizes = {count}, .strides = {1}, .is_neg = true}, bytes);
  };
  CHECK(negated("int64", 2, element_bytes<int64_t>({-kMax - 1, 5})) == element_bytes<int64_t>({-kMax - 1, -5}));
  CHECK(negated("int32", 2, element_bytes<int32_t>({0, 7})) == element_bytes<int32_t>({0, -7}));
  CHECK(negated("int8", 3, element_bytes<int8_t>({-128, 127, 1})) == element_bytes<int8_t>({-128, -127, -1}));
  CHECK(negated("uint8", 2, element_bytes<uint8_t>({0, 1})) == element_bytes<uint8_t>({0, 255}));
  UNSCOPED_INFO("0 becomes -0, and a NaN keeps its bits but one");
  CHECK(negated("float64", 2, element_bytes<double>({0.0, -2.5})) == element_bytes<double>({-0.0, 2.5}));
  CHECK(negated("bfloat16", 1, "\xc1\x7f"s) == "\xc1\xff"s);
  CHECK(negated("float16", 1, "\x00\x3c"s) == "\x00\xbc"s);
}

TEST_CASE("Elements: marks count after the elements were put in order") {
  TensorEntry turned{.dtype = "complex64", .sizes = {2, 2}, .strides = {1, 2}, .is_conj = true};
  CHECK(gather_elements(turned, element_bytes<float>({1, 2, 3, 4, 5, 6, 7, 8})) ==
        element_bytes<float>({1, -2, 5, -6, 3, -4, 7, -8}));
  const TensorEntry half{.dtype = "complex32", .sizes = {1}, .strides = {1}, .is_conj = true};
  CHECK(gather_elements(half, "\x00\x3c\x00\x3c"s) == "\x00\x3c\x00\xbc"s);
}

TEST_CASE("Elements: copies of all tensors share one allowance") {
  CopyAllowance allowance(0);
  const TensorEntry half{.dtype = "int8", .sizes = {int64_t{1} << 29}, .strides = {0}};
  allowance.spend(half);
  allowance.spend(half);
  CHECK_THROWS_WITH(allowance.spend({.dtype = "int8"}), ContainsSubstring("expanded to 1 bytes"));
  UNSCOPED_INFO("what takes nothing is always allowed");
  CHECK_NOTHROW(allowance.spend({.dtype = "int8", .sizes = {0}, .strides = {1}}));
}

TEST_CASE("DTypes: each has one name and one size, and what is not read is known all the same") {
  for (const auto* name : {"float32", "bfloat16", "complex32", "uint64", "float8_e8m0fnu"}) {
    REQUIRE(dtype_by_name(name) != nullptr);
    CHECK(storage_element_bytes(name) == dtype_by_name(name)->bytes);
    CHECK_FALSE(is_other_dtype(name));
  }
  CHECK(dtype_by_storage("FloatStorage")->name == "float32");
  UNSCOPED_INFO("many dtypes have it: it says none");
  CHECK(dtype_by_storage("UntypedStorage") == nullptr);
  CHECK(is_other_dtype("quint4x2"));
  CHECK(storage_element_bytes("qint32") == 4);
  CHECK(other_dtype_by_storage("QInt8Storage")->name == "qint8");
  for (const auto* name : {"", "float", "Float32", "float32 ", "torch.float32", "FloatStorage"}) {
    CHECK(dtype_by_name(name) == nullptr);
    CHECK(storage_element_bytes(name) == 0);
    CHECK_FALSE(is_other_dtype(name));
  }
}

}  // namespace
}  // namespace ddp::pt
