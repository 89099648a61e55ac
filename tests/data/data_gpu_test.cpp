// On a machine with a GPU: batches copied to it beside the computation.
#include <ATen/ATen.h>

#include <stdexcept>

#include <ddprun/comm/process_group.h>
#include <ddprun/data/datasets.h>
#include <ddprun/data/device_loader.h>
#include <ddprun/data/image_datasets.h>
#include <ddprun/samplers/sequential_sampler.h>

#include "tests/support/catch.h"
#include "tests/support/gpu_waits.h"

namespace ddp::data_on_gpu {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

// Makes CUDA known to LibTorch.
class OnGpu {
 protected:
  OnGpu() : group_(init_process_group({.device = kGpu})) {}

 private:
  ProcessGroup group_;
};

TEST_CASE_METHOD(OnGpu, "OnGpu: gives the batches in order whatever the computation does meanwhile") {
  const SyntheticImages images({.size = 96, .channels = 3, .height = 64, .width = 64, .classes = 7});
  for (const int workers : {0, 2}) {
    SequentialSampler sampler(images.size());
    DeviceLoader loader(images, sampler, kGpu, {.batch_size = 10, .workers = workers, .prefetch = 2});
    at::Tensor busy = at::rand({2048, 2048}, at::TensorOptions(kGpu));
    for (int pass = 0; pass < 3; ++pass) {
      std::vector<at::Tensor> data;
      std::vector<at::Tensor> target;
      for (auto& batch : loader) {
        REQUIRE((batch.data.is_cuda() && batch.target.is_cuda()));
        busy = busy.mm(busy).clamp(0, 1);  // the copies of later batches overtake this
        data.push_back(batch.data.clone());
        target.push_back(batch.target.clone());
        CHECK(loader.state().consumed == std::min<int64_t>(96, 10 * static_cast<int64_t>(data.size())));
      }
      std::vector<int64_t> all(96);
      for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
      const Batch expected = images.get_batch(all);
      CHECK(at::cat(data).cpu().equal(expected.data));
      CHECK(at::cat(target).cpu().equal(expected.target));
    }
  }
}

TEST_CASE_METHOD(OnGpu, "OnGpu: a pass may end early and the loader be destroyed then") {
  const SyntheticImages images({.size = 40, .height = 32, .width = 32});
  for (int round = 0; round < 20; ++round) {
    SequentialSampler sampler(images.size());
    DeviceLoader loader(images, sampler, kGpu, {.batch_size = 4, .workers = 2});
    int seen = 0;
    for (auto& batch : loader) {
      CHECK(batch.data.size(0) == 4);
      if (++seen == 3) break;
    }
  }
}

TEST_CASE_METHOD(OnGpu, "OnGpu: the loop waits for no copy") {
  const SyntheticImages images({.size = 64, .height = 32, .width = 32});
  SequentialSampler sampler(images.size());
  DeviceLoader loader(images, sampler, kGpu, {.batch_size = 8, .workers = 2});
  for (int pass = 0; pass < 2; ++pass) {
    const test::NoGpuWaits none;
    int seen = 0;
    for (auto& batch : loader) {
      batch.data.mul_(2);
      ++seen;
    }
    CHECK(seen == 8);
  }
}

struct Broken {
  Batch get_batch(std::span<const int64_t> indices) const {
    if (indices[0] == 6) throw std::runtime_error("unreadable");
    return {.data = at::full({1}, indices[0]), .target = at::zeros({1}, at::kLong)};
  }
};

TEST_CASE_METHOD(OnGpu, "OnGpu: an error comes in its batch's place although that was read ahead") {
  const Broken dataset;
  SequentialSampler sampler(20);
  DeviceLoader loader(dataset, sampler, kGpu, {.batch_size = 2, .workers = 1});
  int seen = 0;
  CHECK_THROWS_AS(([&] {
                    for (auto& batch : loader) {
                      CHECK(batch.data.item<float>() == 2.F * static_cast<float>(seen));
                      ++seen;
                    }
                  })(),
                  LoaderError);
  CHECK(seen == 3);
}

}  // namespace
}  // namespace ddp::data_on_gpu
