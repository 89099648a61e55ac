// IDX, CIFAR-100 and NIfTI files: what is read, and the one clear line for everything else.

#include "tests/data/formats.h"

#include <bit>
#include <cmath>
#include <cstring>

#include <ddprun/data/byte_source.h>
#include <ddprun/data/file_formats.h>

#include "tests/data/gzip.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::StartsWith;
using test::ElementsAre;

class FormatsTest {
 protected:
  fs::path path() const { return folder_.path() / "file"; }
  fs::path file(const std::string& content) const {
    test::write_file(path(), content);
    return path();
  }
  template <typename Action>
  void refused(Action action, const std::string& problem) const {
    CHECK_THROWS_MATCHES(action(), DataError,
                         MessageMatches(StartsWith(path().string() + ": ") && ContainsSubstring(problem)));
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(FormatsTest, "Formats: IDX is read plain and compressed") {
  const std::string content = test::idx({2, 1, 3}, "abcdef");
  for (const std::string& stored : {content, test::gzip(content)}) {
    const IdxArray array = read_idx(file(stored), 3);
    CHECK_THAT(array.shape, ElementsAre(2, 1, 3));
    CHECK_THAT(array.values, ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
  }
  CHECK(read_idx(file(test::idx({0}, "")), 1).values.empty());
}

TEST_CASE_METHOD(FormatsTest, "Formats: IDX of another kind or size is refused") {
  refused([&] { read_idx(file(test::idx({2}, "ab")), 3); }, "of 3 dimensions, got 1");
  refused([&] { read_idx(file("\x89PNG\r\n\x1a\n"), 3); }, "expected an IDX file");
  refused([&] { read_idx(file(test::idx({3}, "ab")), 1); }, "truncated");
  refused([&] { read_idx(file(test::idx({1}, "ab")), 1); }, "more follows");
  refused([&] { read_idx(file(std::string("\0\0\x08\x01", 4)), 1); }, "expected 8 bytes or more, got 4");
  // Sizes that would fill the memory, plain and compressed.
  refused([&] { read_idx(file(test::idx({1U << 31, 100}, "ab")), 2); }, "after byte 12, but the file has 14");
  refused([&] { read_idx(file(test::gzip(test::idx({1U << 31, 100}, "ab"))), 2); }, "(compressed)");
  refused([&] { read_idx(file(test::idx({~0U, ~0U, ~0U}, "ab")), 3); }, "more than 2^40 values");
}

TEST_CASE_METHOD(FormatsTest, "Formats: CIFAR-100 has a coarse and a fine label") {
  const std::string pixels(3072, 'p');
  std::string content = std::string("\x03\x44", 2) + pixels + std::string("\x13\x63", 2) + pixels;
  const Cifar100Content read = read_cifar100_file(file(content));
  CHECK_THAT(read.coarse_labels, ElementsAre(3, 19));
  CHECK_THAT(read.fine_labels, ElementsAre(0x44, 99));
  CHECK(read.images == std::vector<uint8_t>(2 * 3072, 'p'));
  content[0] = 20;
  refused([&] { read_cifar100_file(file(content)); }, "image 0: expected a coarse label from 0 to 19, got 20");
  content[0] = 1;
  content[3074 + 1] = 100;
  refused([&] { read_cifar100_file(file(content)); }, "image 1: expected a fine label from 0 to 99, got 100");
  refused([&] { read_cifar100_file(file(content.substr(1))); }, "whole records of 3074 bytes");
  refused([&] { read_cifar100_file(file("")); }, "whole records");
}

TEST_CASE_METHOD(FormatsTest, "Formats: label names are as many as asked for and printable") {
  CHECK_THAT(read_label_names(file("apple\r\nblue whale\n\n"), 2), ElementsAre("apple", "blue whale"));
  refused([&] { read_label_names(file("a\n"), 2); }, "expected 2 class names, one a line, got 1");
  refused([&] { read_label_names(file("a\n\x1b[2Jb\n"), 2); }, "control character");
}

TEST_CASE_METHOD(FormatsTest, "Formats: NIfTI gives depth, height, width with x fastest") {
  test::NiftiFile nifti{.dimensions = {3, 2, 3, 4}, .spacing = {0, 1.0F, 2.0F, -3.0F}};
  std::vector<int16_t> values(24);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int16_t>(i * 1000 - 12000);
  for (const bool swap : {false, true}) {
    const std::string content = nifti.bytes<int16_t>(4, values, swap);
    for (const std::string& stored : {content, test::gzip(content)}) {
      const NiftiVolume volume = read_nifti(file(stored));
      CHECK(volume.depth == 4);
      CHECK(volume.height == 3);
      CHECK(volume.width == 2);
      CHECK_THAT(volume.spacing_mm, ElementsAre(3.0F, 2.0F, 1.0F));
      CHECK(volume.values == std::vector<float>(values.begin(), values.end()));
    }
  }
}

TEST_CASE_METHOD(FormatsTest, "Formats: NIfTI of every number type is scaled in double precision") {
  test::NiftiFile nifti{.dimensions = {1, 3}, .slope = 0.1F, .intercept = -1.0F};
  const auto expect = [&](auto number, int16_t type) {
    using Number = decltype(number);
    const std::vector<Number> values = {0, 1, 100};
    for (const bool swap : {false, true}) {
      const NiftiVolume volume = read_nifti(file(nifti.bytes<Number>(type, values, swap)));
      for (size_t i = 0; i < 3; ++i) {
        const double scaled = static_cast<double>(values[i]) * static_cast<double>(0.1F) - 1.0;
        INFO("type " << type);
        CHECK(volume.values[i] == static_cast<float>(scaled));
      }
    }
  };
  expect(uint8_t{}, 2);
  expect(int16_t{}, 4);
  expect(int32_t{}, 8);
  expect(float{}, 16);
  expect(double{}, 64);
  expect(int8_t{}, 256);
  expect(uint16_t{}, 512);
  expect(uint32_t{}, 768);
  expect(int64_t{}, 1024);
  expect(uint64_t{}, 1280);
  for (const float none : {0.0F, std::nanf(""), INFINITY}) {
    nifti.slope = none;
    INFO(none);
    CHECK_THAT(read_nifti(file(nifti.bytes<uint8_t>(2, {7, 8, 9}))).values, ElementsAre(7, 8, 9));
  }
}

TEST_CASE_METHOD(FormatsTest, "Formats: NIfTI-2 gives the same, and a series its volumes one behind the other") {
  const test::NiftiFile nifti{
      .dimensions = {4, 2, 1, 2, 3}, .spacing = {0, 1.0F, 2.0F, -3.0F}, .slope = 2, .intercept = 1};
  const std::vector<int16_t> values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, -300};
  for (const bool swap : {false, true}) {
    for (const auto& content : {nifti.bytes<int16_t>(4, values, swap), nifti.second_bytes<int16_t>(4, values, swap)}) {
      const NiftiVolume series = read_nifti(file(content), {.series = true});
      CHECK(series.volumes == 3);
      CHECK(series.depth == 2);
      CHECK(series.spacing_mm == std::array<float, 3>{3.0F, 2.0F, 1.0F});
      CHECK(series.values.size() == 12U);
      CHECK(series.values[5] == 11.0F);
      CHECK(series.values[11] == -599.0F);
      refused([&] { read_nifti(path()); }, "dimension 4 has size 3; expected a single volume");
      refused([&] { read_nifti(file(content.substr(0, content.size() - 1)), {.series = true}); }, "truncated");
    }
  }
  std::string damaged = nifti.second_bytes<int16_t>(4, values);
  damaged[8] = '\n';
  refused([&] { read_nifti(file(damaged)); }, "magic n+1, n+2");
  refused([&] { read_nifti(file(damaged.substr(0, 400))); }, "truncated");
  const test::NiftiFile five{.dimensions = {5, 1, 1, 1, 1, 2}};
  refused([&] { read_nifti(file(five.bytes<uint8_t>(2, {1, 2})), {.series = true}); }, "dimension 5 has size 2");
}

TEST_CASE_METHOD(FormatsTest, "Formats: NIfTI that is damaged or no single volume is refused") {
  const test::NiftiFile good{.dimensions = {3, 2, 2, 2}};
  const std::vector<uint8_t> values(8);
  const std::string content = good.bytes<uint8_t>(2, values);
  refused([&] { read_nifti(file(content.substr(0, content.size() - 1))); }, "truncated");
  refused([&] { read_nifti(file(content.substr(0, 100))); }, "expected 348 bytes or more, got 100");
  refused([&] { read_nifti(file(std::string(400, 'x'))); }, "magic n+1");
  refused([&] { read_nifti(file(good.bytes<uint8_t>(128, values))); }, "data type 128 is not supported");
  const auto with = [&](test::NiftiFile changed) { return file(changed.bytes<uint8_t>(2, values)); };
  refused([&] { read_nifti(with({.dimensions = {4, 2, 2, 2, 5}})); }, "dimension 4 has size 5");
  refused([&] { read_nifti(with({.dimensions = {3, 2, 2, 2}, .intercept = std::nanf("")})); }, "not a finite number");
  CHECK(read_nifti(with({.dimensions = {3, 2, 2, 2}, .slope = 0, .intercept = INFINITY})).values[0] == 0.0F);
  refused([&] { read_nifti(with({.dimensions = {3, 2, -2, 2}})); }, "dimension 2 has size -2");
  refused([&] { read_nifti(with({.dimensions = {9, 2}})); }, "1 to 7 dimensions, got 9");
  refused([&] { read_nifti(with({.dimensions = {3, 32767, 32767, 32767}})); }, "more than 2^33");
  refused([&] { read_nifti(with({.dimensions = {3, 2000, 2000, 2000}})); }, "truncated");
  for (const float offset : {0.0F, 1e30F, -1.0F, std::nanf("")}) {
    refused([&] { read_nifti(with({.dimensions = {3, 2, 2, 2}, .offset = offset})); }, "not after the header");
  }
  CHECK(read_nifti(with({.dimensions = {4, 2, 2, 2, 1}})).values.size() == 8U);
}

}  // namespace
}  // namespace ddp
