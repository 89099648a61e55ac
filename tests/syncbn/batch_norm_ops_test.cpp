// The arithmetic of one rank: instruction sets, threads, and the GPU's merge beside the CPU's.
#include <ATen/Parallel.h>

#include <ctime>
#include <vector>

#include "syncbn/cpu_batch_norm_ops.h"
#include "syncbn/device_batch_norm_ops.h"
#include "tests/support/catch.h"
#include "tests/syncbn/numbers.h"

namespace ddp {
namespace {

using test::error;
using test::numbers;
using torch::Tensor;

TEST_CASE("CpuBatchNormOps: every instruction set and thread count gives the same result") {
  const detail::SimdLevel* levels[2];
  const int count = detail::supported_simd_levels(levels);
  const int threads = at::get_num_threads();
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf}) {
    for (const bool channels_last : {false, true}) {
      const auto format = channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
      const Tensor x = numbers({6, 37, 33, 35}, 1, type).contiguous(format);
      const Tensor dy = numbers({6, 37, 33, 35}, 2, type).contiguous(format);
      std::vector<std::vector<Tensor>> results;
      for (int i = 0; i < count; ++i) {
        for (const int used : {1, 3}) {
          at::set_num_threads(used);
          const detail::CpuBatchNormOps ops(*levels[i]);
          const Tensor row = ops.local_row(x, {.channels = 37});
          const auto statistics = ops.merge(row.unsqueeze(0), 37, 1e-5, {});
          const auto gradients = ops.local_gradients(dy, x, statistics, {});
          results.push_back({row, ops.normalize(x, statistics, {}, {}), gradients.sums,
                             ops.input_gradient(dy, x, statistics, {}, gradients.sums)});
          at::set_num_threads(threads);
          if (used == 3) {
            for (size_t k = 0; k < 4; ++k) {
              INFO(levels[i]->name << " " << k);
              CHECK(torch::equal(results.back()[k], results[results.size() - 2][k]));
            }
          }
        }
      }
      const double rounding = type == torch::kDouble ? 1e-13 : type == torch::kFloat ? 1e-6 : 1e-2;
      for (const auto& result : results) {
        CHECK(error(result[0], results[0][0]) < 1e-13);
        CHECK(error(result[1], results[0][1]) < rounding);
        CHECK(error(result[2], results[0][2]) < 1e-11);
        CHECK(error(result[3], results[0][3]) < rounding);
      }
    }
  }
}

// at::parallel_for is inline: in a source without OpenMP it would run on one thread, whatever LibTorch is set to.
TEST_CASE("CpuBatchNormOps: uses all of LibTorch's threads") {
#if defined(__SANITIZE_THREAD__)
  SKIP("OpenMP's runtime is not instrumented");
#endif
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  timespec before{}, after{};
  const Tensor x = torch::ones({64, 64, 32, 32});
  const auto statistics_of = [&] { return detail::CpuBatchNormOps().local_row(x, {.channels = 64}); };
  statistics_of();  // starts the threads
  timespec process_before{}, process_after{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &process_before);
  for (int i = 0; i < 20; ++i) statistics_of();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &process_after);
  at::set_num_threads(threads);
  const auto seconds = [](const timespec& a, const timespec& b) {
    return static_cast<double>(b.tv_sec - a.tv_sec) + static_cast<double>(b.tv_nsec - a.tv_nsec) * 1e-9;
  };
  INFO("other threads did nothing");
  CHECK(seconds(before, after) < 0.8 * seconds(process_before, process_after));
}

// The GPU's merge is made of tensor operations, so it can be checked here.
TEST_CASE("DeviceBatchNormOps: its merge equals the CPU's") {
  const Tensor shares[3] = {numbers({0, 5}, 1), numbers({40, 5}, 2) * 3 + 7, numbers({9, 5}, 3) - 2};
  std::vector<Tensor> device_rows, cpu_rows;
  for (const Tensor& share : shares) {
    const bool empty = share.size(0) == 0;
    const Tensor mean = empty ? torch::zeros({5}, torch::kDouble) : share.mean(0);
    const Tensor variance = empty ? torch::zeros({5}, torch::kDouble) : share.var(0, /*unbiased=*/false);
    device_rows.push_back(detail::device_row(mean, variance, share.size(0)));
    cpu_rows.push_back(detail::CpuBatchNormOps().local_row(share, {.channels = 5}));
  }
  const auto run = [](const detail::BatchNormOps& ops, const std::vector<Tensor>& rows) {
    detail::RunningStatistics running{.mean = torch::ones({5}), .var = torch::ones({5}), .momentum = 0.3};
    const auto statistics = ops.merge(torch::stack(rows), 5, 1e-5, running);
    return std::vector<Tensor>{statistics.mean, statistics.invstd, statistics.count, running.mean, running.var};
  };
  const auto expected = run(detail::CpuBatchNormOps(), cpu_rows);
  const auto actual = run(detail::DeviceBatchNormOps(), device_rows);
  for (size_t i = 0; i < expected.size(); ++i) {
    UNSCOPED_INFO(i);
    CHECK(error(actual[i], expected[i]) < (i < 3 ? 1e-13 : 1e-6));
  }

  const std::vector<Tensor> none{device_rows[0], device_rows[0]};
  const auto empty = run(detail::DeviceBatchNormOps(), none);
  UNSCOPED_INFO("an empty batch changes nothing");
  CHECK(torch::equal(empty[3], torch::ones({5})));
  CHECK(empty[1].isfinite().all().item<bool>());
}

TEST_CASE("DeviceBatchNormOps: counts beyond single precision are exact") {
  const int64_t values = (int64_t{1} << 30) + 3;
  const Tensor row = detail::device_row(torch::ones({2}), torch::ones({2}), values);
  CHECK(row.scalar_type() == torch::kFloat);
  const auto statistics = detail::DeviceBatchNormOps().merge(row.unsqueeze(0), 2, 0, {});
  CHECK(statistics.count.item<int>() == values);
}

}  // namespace
}  // namespace ddp
