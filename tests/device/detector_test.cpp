// What a GPU refuses, or waits for, and the CPU's kernels behind the simulated devices do not.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <string>

#include "tests/support/catch.h"
#include "tests/support/device/device.h"

namespace ddp::test {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;

const at::TensorOptions kOnFirst{device::device_at(0)};

class Detector {
 protected:
  Detector() {
    device::drain();
    device::faults();
    device::forget_counts();
  }
  ~Detector() { device::drain(); }
};

TEST_CASE_METHOD(Detector, "Detector: a kernel's error that no wait of the host has thrown is a fault") {
  const at::Tensor numbers = at::ones({4}, kOnFirst);
  at::index_select(numbers, 0, at::full({1}, 9, kOnFirst.dtype(at::kLong)));
  device::drain();
  CHECK_THAT(device::faults(), Contains(ContainsSubstring("of device 0 nobody has heard: kernel aten::index_select")));
  CHECK(numbers.sum().item<float>() == 4);
  device::drain();
  CHECK_THAT(device::faults(), IsEmpty());
}

TEST_CASE_METHOD(Detector, "Detector: a number of the host is none that a loss scale's kernel could read") {
  at::Tensor scale = at::full({}, 8, kOnFirst.dtype(at::kFloat));
  at::Tensor tracker = at::zeros({}, kOnFirst.dtype(at::kInt));
  CHECK_THROWS_WITH(at::_amp_update_scale_(scale, tracker, at::ones({}), 2, 0.5, 10),
                    ContainsSubstring("found at least two devices"));
  CHECK_THAT(device::faults(), Contains(ContainsSubstring("got a tensor of the CPU")));
  at::_amp_update_scale_(scale, tracker, at::ones({}, kOnFirst), 2, 0.5, 10);
  CHECK(scale.item<float>() == 4);
  CHECK((scale + at::ones({})).item<float>() == 5);  // as LibTorch's other operators
  CHECK_THAT(device::faults(), IsEmpty());
}

TEST_CASE_METHOD(Detector, "Detector: indexing by a mask makes the host wait") {
  at::Tensor numbers = at::arange(6, kOnFirst.dtype(at::kFloat));
  const at::Tensor mask = numbers.gt(3);
  CHECK_THAT(device::counts().host_waits, IsEmpty());
  const at::Tensor chosen = numbers.index({mask});
  CHECK(chosen.numel() == 2);
  CHECK(device::counts().host_waits.size() == 1);
  numbers.index_put_({mask}, at::zeros({2}, kOnFirst));
  CHECK(device::counts().host_waits.size() == 2);
  numbers.index_put_({mask}, at::full({}, 7.F));
  CHECK(device::counts().host_waits.size() == 2);
  CHECK(numbers.sum().item<float>() == 20);
  CHECK(chosen.sum().item<float>() == 9);
}

TEST_CASE_METHOD(Detector, "Detector: asking whether a stream is idle until it is makes a copy's result readable") {
  const c10::impl::VirtualGuardImpl guard(device::device_at(0).type());
  for (uint64_t seed = 0; seed < 10; ++seed) {
    device::set_schedule(seed);
    const at::Tensor numbers = at::ones({64}, kOnFirst).mul(3);
    at::Tensor copy = at::zeros({64}).pin_memory();
    copy.copy_(numbers, /*non_blocking=*/true);
    const c10::Stream stream = guard.getStream(device::device_at(0));
    while (!guard.queryStream(stream)) {
    }
    CHECK(copy[5].item<float>() == 3);
  }
  device::drain();
  CHECK_THAT(device::faults(), IsEmpty());
}

TEST_CASE_METHOD(Detector, "Detector: memory that a tensor only borrows is that of the tensor that owns it") {
  at::Tensor owner = at::ones({64}, kOnFirst);
  const at::Tensor borrower = at::from_blob(
      owner.data_ptr(), {64}, [](void*) {}, kOnFirst, device::device_at(0));
  CHECK(borrower.mul(2).sum().item<float>() == 128);
  CHECK_THAT(device::faults(), IsEmpty());
  {
    const c10::StreamGuard side(device::new_stream(0));
    owner.record_stream(side.current_stream());
    owner.add_(1);
    device::faults();  // nothing has ordered that either
  }
  borrower.mul(2);
  CHECK_THAT(device::faults(), Contains(ContainsSubstring("aten::mul on stream 0 of device 0 does not wait for")));
  device::drain();
  device::faults();
  owner.reset();
  borrower.zero_();
  CHECK_THAT(device::faults(), Contains(ContainsSubstring("that nothing has allocated")));
}

}  // namespace
}  // namespace ddp::test
