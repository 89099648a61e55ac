// A picture's samples are decoded where they stay: reading one takes its file, its samples and little else.
#include <ATen/ATen.h>
#include <zlib.h>

#include <fstream>
#include <string>

#include <ddprun/data/arrays.h>

#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string chunk(const std::string& name, const std::string& content) {
  const std::string checked = name + content;
  const auto sum = crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()));
  return big_endian(static_cast<uint32_t>(content.size())) + checked + big_endian(static_cast<uint32_t>(sum));
}

// 8-bit samples; every pixel has the values 1, 2, …
std::string png(uint32_t side, char color_type, uint32_t channels) {
  std::string row(1, '\0');
  for (uint32_t i = 0; i < side * channels; ++i) row.push_back(static_cast<char>(i % channels + 1));
  std::string rows;
  for (uint32_t y = 0; y < side; ++y) rows += row;
  uLongf size = compressBound(rows.size());
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(rows.data()), rows.size());
  packed.resize(size);
  const std::string kind{'\10', color_type, '\0', '\0', '\0'};
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", big_endian(side) + big_endian(side) + kind) + chunk("IDAT", packed) +
         chunk("IEND", "");
}

int64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

TEST_CASE("Raster: no second copy of the samples is made") {
  const test::TemporaryFolder folder;
  constexpr int64_t kSide = 6000;
  const auto [color_type, channels] =
      GENERATE(std::pair<char, int64_t>(0, 1), std::pair<char, int64_t>(4, 2), std::pair<char, int64_t>(2, 3));
  CAPTURE(channels);
  test::write_file(folder / "file.png", png(kSide, color_type, static_cast<uint32_t>(channels)));
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;  // VmHWM begins anew
  if (!clear) SKIP("the peak of the resident memory cannot be reset here");
  const auto before = status_bytes("VmRSS:");
  const at::Tensor samples = load_raster(folder / "file.png");
  const auto taken = status_bytes("VmHWM:") - before;
  CHECK(taken < static_cast<int64_t>(samples.nbytes()) * 5 / 4);
  REQUIRE(samples.sizes() == at::IntArrayRef{channels, kSide, kSide});
  CHECK(samples.is_contiguous());
  for (int64_t c = 0; c < channels; ++c) CHECK(samples[c].eq(c + 1).all().item<bool>());
}

}  // namespace
}  // namespace ddp
