// Reads each file named on the command line with the reader that its name asks for, and prints one line about it:
// `<decoded bytes> <peak bytes> <CPU seconds> <file>: <what the reader said>`. The peak is the resident memory that the
// reader took beyond what the process had before. One file per process, so that no file profits from memory that an
// earlier one left. Anything but a DataError ends the program with status 3.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ddprun/data/byte_source.h>
#include <ddprun/data/file_formats.h>
#include <ddprun/data/image.h>

#include "data/formats/limits.h"
#include "data/formats/raster.h"
#include "data/formats/shard_format.h"

namespace {

/// A value of /proc/self/status in bytes.
long long status_bytes(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// The bytes of the largest sample of a tar archive.
long long read_samples(const std::string& path) {
  constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;  // what WebDatasetOptions has
  ddp::ShardReader reader(path, kMaxFileBytes);
  size_t most = 0;
  while (const auto sample = reader.next(/*with_content=*/true)) {
    size_t bytes = 0;
    for (const auto& file : sample->files) bytes += file.content.size();
    most = std::max(most, bytes);
  }
  return static_cast<long long>(most);
}

/// The bytes of what the reader gives.
long long read(const std::string& path) {
  const auto ends = [&](std::string_view ending) {
    return path.ends_with(ending) || path.ends_with(std::string(ending) + ".gz");
  };
  if (ends(".nii")) return static_cast<long long>(ddp::read_nifti(path).values.size() * sizeof(float));
  if (ends(".idx")) return static_cast<long long>(ddp::read_idx(path, 3).values.size());
  if (ends(".tar")) return read_samples(path);
  if (ends(".json")) return static_cast<long long>(ddp::read_class_indices(path).size());
  if (ends(".cifar100")) return static_cast<long long>(ddp::read_cifar100_file(path).images.size());
  if (ends(".cifar10")) {
    const auto count = static_cast<size_t>(ddp::cifar10_image_count(path));
    std::vector<uint8_t> images(count * static_cast<size_t>(ddp::kCifar10ImageBytes));
    std::vector<int64_t> labels(count);
    ddp::read_cifar10_file(path, images, labels);
    return static_cast<long long>(images.size() + labels.size() * sizeof(int64_t));
  }
  if (path.find("centre") != std::string::npos) {
    const ddp::Image image = ddp::read_image(path);
    const auto bytes = static_cast<long long>(image.pixels.size());
    return bytes + static_cast<long long>(ddp::resize_and_crop_centre(image, 256, 224).pixels.size());
  }
  if (path.find("raster") != std::string::npos) {
    std::unique_ptr<uint8_t[]> samples;  // which new does not touch
    const auto memory = [&](const ddp::Raster& raster) {
      samples.reset(new uint8_t[static_cast<size_t>(raster.bytes())]);
      return samples.get();
    };
    return ddp::decode_raster(ddp::read_small_file_bytes(path, uint64_t{1} << 32), path, {}, memory).bytes();
  }
  return static_cast<long long>(ddp::read_image(path).pixels.size());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  const std::string path = argv[1];
  std::string said = "read";
  const long long before = status_bytes("VmRSS:");
  const double begin = cpu_seconds();
  long long decoded = 0;
  try {
    decoded = read(path);
  } catch (const ddp::DataError& error) {
    said = std::string(error.what()).substr(path.size() + 2);
  }
  const double seconds = cpu_seconds() - begin;
  std::printf("%lld %lld %.3f %s: %s\n", decoded, status_bytes("VmHWM:") - before, seconds, path.c_str(), said.c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "expected a DataError, got: %s\n", error.what());
  return 3;
}
