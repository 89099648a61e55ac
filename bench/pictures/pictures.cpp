// Measures pictures per second, and per second of CPU time, for a folder of JPEG files in one thread: pictures FOLDER
// HOW SECONDS. HOW is whole, rows or reduced (each reads a file, decodes it and converts a random part of it to 224x224
// floats), or jpeg (libjpeg-turbo only decodes files that are already in memory).
#include <ATen/Parallel.h>
#include <jpeglib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <string>
#include <vector>

#include <ddprun/data/image_datasets.h>
#include <ddprun/data/loader.h>
#include <ddprun/samplers/distributed_sampler.h>

namespace {

using Clock = std::chrono::steady_clock;

int64_t decode(const std::vector<uint8_t>& file, std::vector<uint8_t>& pixels) {
  jpeg_decompress_struct decoder{};
  jpeg_error_mgr errors{};
  decoder.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&decoder);
  jpeg_mem_src(&decoder, file.data(), file.size());
  jpeg_read_header(&decoder, TRUE);
  decoder.out_color_space = JCS_RGB;
  jpeg_start_decompress(&decoder);
  const size_t row_bytes = size_t{3} * decoder.output_width;
  pixels.resize(row_bytes * decoder.output_height);
  while (decoder.output_scanline < decoder.output_height) {
    JSAMPROW row = pixels.data() + row_bytes * decoder.output_scanline;
    jpeg_read_scanlines(&decoder, &row, 1);
  }
  jpeg_finish_decompress(&decoder);
  jpeg_destroy_decompress(&decoder);
  return 1;
}

/// Runs one warm-up pass, then passes for the given time, and prints their rates.
template <typename Pass>
void print_rates(double seconds, const Pass& pass) {
  pass(0);
  int64_t pictures = 0;
  const auto start = Clock::now();
  const std::clock_t processor_start = std::clock();
  double passed = 0;
  for (int64_t epoch = 1; passed < seconds; ++epoch) {
    pictures += pass(epoch);
    passed = std::chrono::duration<double>(Clock::now() - start).count();
  }
  const double processor = static_cast<double>(std::clock() - processor_start) / CLOCKS_PER_SEC;
  std::printf("%.1f %.1f\n", static_cast<double>(pictures) / passed, static_cast<double>(pictures) / processor);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return 2;
  at::set_num_threads(1);
  const auto listing = ddp::list_image_folder(argv[1]);
  const std::string how = argv[2];
  const double seconds = std::stod(argv[3]);
  if (how == "jpeg") {
    std::vector<std::vector<uint8_t>> files;
    for (const auto& file : listing.files) files.push_back(ddp::read_small_file_bytes(file, 1 << 28));
    std::vector<uint8_t> pixels;
    print_rates(seconds, [&](int64_t) {
      int64_t count = 0;
      for (const auto& file : files) count += decode(file, pixels);
      return count;
    });
    return 0;
  }
  const auto decoding = how == "reduced" ? ddp::PartDecoding::kReduced
                        : how == "rows"  ? ddp::PartDecoding::kRows
                                         : ddp::PartDecoding::kWhole;
  const ddp::ImageFolder dataset(listing, {.augment = true, .decoding = decoding});
  ddp::DistributedSampler sampler(dataset.size(), {.num_replicas = 1, .rank = 0});
  ddp::Loader loader(dataset, sampler, {.batch_size = 32, .workers = 0});
  print_rates(seconds, [&](int64_t epoch) {
    sampler.set_epoch(epoch);
    int64_t count = 0;
    for (auto& batch : loader) count += batch.target.numel();
    return count;
  });
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
