// The simulated accelerator itself (tests/support/device/): what it must do, and what it must catch.
#include "tests/support/device/device.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <string>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/errors.h"

namespace ddp::test {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using Catch::Matchers::SizeIs;

const c10::Device kFirst = device::device_at(0);
const c10::Device kSecond = device::device_at(1);

at::TensorOptions on(c10::Device device) {
  return at::TensorOptions(device);
}

void order(c10::Stream earlier, c10::Stream later) {
  c10::Event reached(earlier.device_type());
  reached.record(earlier);
  reached.block(later);
}

class OnDevices {
 protected:
  OnDevices() {
    device::drain();
    device::faults();
    device::forget_counts();
    device::set_schedule(1);
  }
  ~OnDevices() { device::drain(); }
};

TEST_CASE_METHOD(OnDevices, "Device: there are four, with streams and current devices of each thread") {
  CHECK(device::count() == 4);
  const c10::impl::VirtualGuardImpl guard(kFirst.type());
  CHECK(guard.deviceCount() == 4);
  const c10::DeviceGuard second(kSecond);
  CHECK(guard.getDevice() == kSecond);
  std::optional<c10::Device> of_another_thread;
  std::thread([&] { of_another_thread = guard.getDevice(); }).join();
  CHECK(of_another_thread == kFirst);
  CHECK(at::empty({2}, on(c10::Device(kFirst.type()))).device() == kSecond);
}

TEST_CASE_METHOD(OnDevices, "Device: operators give the CPU's bits in every schedule") {
  const at::Tensor a = at::rand({17, 23});
  const at::Tensor b = at::rand({23, 5});
  const at::Tensor expected = at::cat({a.mm(b).relu().sum(1), a.std(1)}).softmax(0);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    device::set_schedule(seed);
    const at::Tensor x = a.to(kFirst);
    const at::Tensor y = b.to(kFirst);
    const at::Tensor result = at::cat({x.mm(y).relu().sum(1), x.std(1)}).softmax(0);
    REQUIRE(at::equal(result.cpu(), expected));
  }
  CHECK_THAT(device::faults(), IsEmpty());
}

TEST_CASE_METHOD(OnDevices,
                 "Device: what streams do not order happens in different orders, and is a fault every time") {
  int different = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    device::set_schedule(seed);
    at::Tensor value = at::zeros({4}, on(kFirst));
    const c10::Stream other = device::new_stream(0);
    order(c10::impl::VirtualGuardImpl(kFirst.type()).getStream(kFirst), other);
    for (int i = 0; i < 3; ++i) value.add_(1);
    {
      const c10::StreamGuard guard(other);
      value.mul_(2);
    }
    device::drain();
    CHECK_THAT(device::faults(), Contains(ContainsSubstring("does not wait for")));
    different += value[0].item<float>() == 6 ? 0 : 1;
  }
  CHECK(different > 0);
  CHECK(different < 50);
}

TEST_CASE_METHOD(OnDevices, "Device: an event orders streams") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    device::set_schedule(seed);
    at::Tensor value = at::zeros({4}, on(kFirst));
    const c10::Stream here = c10::impl::VirtualGuardImpl(kFirst.type()).getStream(kFirst);
    const c10::Stream other = device::new_stream(0);
    for (int i = 0; i < 3; ++i) value.add_(1);
    order(here, other);
    {
      const c10::StreamGuard guard(other);
      value.mul_(2);
    }
    order(other, here);
    REQUIRE(value.add(1)[0].item<float>() == 7);
  }
  CHECK_THAT(device::faults(), IsEmpty());
}

TEST_CASE_METHOD(OnDevices, "Device: memory let go while another stream uses it is a fault, unless that was told") {
  for (const bool told : {false, true}) {
    const c10::Stream other = device::new_stream(0);
    at::Tensor value = at::ones({64}, on(kFirst));
    order(c10::impl::VirtualGuardImpl(kFirst.type()).getStream(kFirst), other);
    at::Tensor sum;
    {
      const c10::StreamGuard guard(other);
      sum = value.add(1);
      if (told) value.record_stream(other);
    }
    value.reset();
    const at::Tensor taken = at::zeros({64}, on(kFirst));  // the same memory, if it was free
    device::drain();
    if (told) {
      CHECK_THAT(device::faults(), IsEmpty());
      CHECK(sum.sum().item<float>() == 128);
    } else {
      CHECK_THAT(device::faults(), Contains(ContainsSubstring("no record_stream")));
    }
  }
}

TEST_CASE_METHOD(OnDevices, "Device: freed memory is given out again at once, and holds NaN until it is written") {
  at::Tensor first = at::ones({1000}, on(kFirst));
  const void* address = first.const_data_ptr();
  first.reset();
  const at::Tensor second = at::empty({1000}, on(kFirst));
  CHECK(second.const_data_ptr() == address);
  CHECK(second.isnan().all().item<bool>());
  CHECK(at::empty({3}, on(kFirst).dtype(at::kByte)).eq(0xAA).all().item<bool>());
}

TEST_CASE_METHOD(OnDevices, "Device: tensors of two devices in one operator are refused") {
  const at::Tensor a = at::ones({2}, on(kFirst));
  const at::Tensor b = at::ones({2}, on(kSecond));
  CHECK_THROWS_WITH(a.add(b), ContainsSubstring("Expected all tensors to be on the same device"));
  CHECK_THROWS_WITH(a.view({1, 2}).mm(at::ones({2, 1})), ContainsSubstring("Expected all tensors"));
  CHECK(a.add(at::full({}, 2)).sum().item<float>() == 6);
}

TEST_CASE_METHOD(OnDevices, "Device: an event of one device is not recorded on another's stream") {
  c10::Event event(kFirst.type());
  event.record(device::new_stream(0));
  event.record(device::new_stream(1));
  CHECK_THAT(device::faults(), SizeIs(1) && Contains(ContainsSubstring("an event of device 0")));
}

TEST_CASE_METHOD(OnDevices, "Device: page-locked memory that changes under its copy is a fault") {
  for (const bool changed : {false, true}) {
    device::set_schedule(3);
    const at::Tensor source = at::ones({256}).pin_memory();
    REQUIRE(source.is_pinned());
    const c10::Stream stream = device::new_stream(0);
    const c10::StreamGuard guard(stream);
    c10::Event gate(kFirst.type());
    at::Tensor busy = at::rand({128, 128}, on(kFirst));
    for (int i = 0; i < 20; ++i) busy = busy.mm(busy);
    const at::Tensor copy = source.to(kFirst, /*non_blocking=*/true);
    if (changed) source.fill_(2);
    device::drain();
    if (changed) {
      CHECK_THAT(device::faults(), Contains(ContainsSubstring("was changed before the host waited for the copy")));
    } else {
      CHECK_THAT(device::faults(), IsEmpty());
      CHECK(copy.sum().item<float>() == 256);
    }
  }
}

TEST_CASE_METHOD(OnDevices, "Device: a copy to pageable memory that is asked not to wait is a fault") {
  const at::Tensor value = at::ones({8}, on(kFirst));
  value.to(c10::kCPU, /*non_blocking=*/true);  // LibTorch takes page-locked memory here
  CHECK_THAT(device::faults(), IsEmpty());
  at::empty({8}).copy_(value, /*non_blocking=*/true);
  CHECK_THAT(device::faults(), Contains(ContainsSubstring("pageable")));
  device::drain();
}

TEST_CASE_METHOD(OnDevices, "Device: waits of the host are counted, with their reason") {
  const at::Tensor value = at::ones({8}, on(kFirst));
  const at::Tensor pinned = at::ones({8}).pin_memory();
  device::forget_counts();
  const at::Tensor more = value.add(pinned.to(kFirst, /*non_blocking=*/true)).sum();
  CHECK_THAT(device::counts().host_waits, IsEmpty());
  CHECK(device::counts().to_device == 1);
  CHECK(device::counts().pageable == 0);
  CHECK(more.item<float>() == 16);
  CHECK_THAT(device::counts().host_waits, SizeIs(1) && Contains(ContainsSubstring("_local_scalar_dense")));
  at::ones({8}).to(kFirst);
  CHECK(device::counts().pageable == 1);
  CHECK(device::counts().host_waits.size() == 2);
}

TEST_CASE_METHOD(OnDevices, "Device: random numbers depend on the seed and the order of launches alone") {
  const auto draw = [](uint64_t schedule) {
    device::set_schedule(schedule);
    at::Generator generator = at::globalContext().defaultGenerator(kFirst);
    generator.set_current_seed(7);
    return at::cat({at::rand({5}, on(kFirst)), at::rand({5}, on(kFirst))}).cpu();
  };
  const at::Tensor first = draw(1);
  CHECK(at::equal(first, draw(2)));
  CHECK_FALSE(at::equal(first.narrow(0, 0, 5), first.narrow(0, 5, 5)));
}

TEST_CASE_METHOD(OnDevices, "Device: copies between devices are waited for by both") {
  const c10::Stream streams[] = {device::new_stream(0), device::new_stream(1)};
  const c10::StreamGuard first(streams[0]);
  const c10::StreamGuard second(streams[1]);
  at::Tensor value = at::arange(100, on(kFirst));
  const at::Tensor there = value.to(kSecond);
  value.zero_();
  CHECK(there.sum().item<int64_t>() == 4950);
  CHECK(device::counts().between_devices == 1);
  CHECK_THAT(device::faults(), IsEmpty());
}

TEST_CASE_METHOD(OnDevices, "Device: a kernel's error comes with the next wait of the host") {
  const at::Tensor rows = at::ones({3, 2}, on(kFirst));
  const at::Tensor wrong = at::full({1}, 7, on(kFirst).dtype(at::kLong));
  const at::Tensor row = rows.index_select(0, wrong);
  CHECK_THROWS_WITH(row.cpu(), ContainsSubstring("index out of range"));
}

TEST_CASE_METHOD(OnDevices, "Device: what tensors still hold is told") {
  const size_t before = device::live_memory().size();
  at::Tensor value = at::ones({5}, on(kSecond));
  CHECK_THAT(device::live_memory(), SizeIs(before + 1) && Contains(ContainsSubstring("20 bytes")));
  value.reset();
  CHECK(device::live_memory().size() == before);
}

TEST_CASE_METHOD(OnDevices, "Device: autocast has CUDA's list") {
  const at::Tensor full = at::ones({4, 4}, on(kFirst));
  const at::Tensor half = full.to(at::kHalf);
  const auto is_autocast = [&](bool enabled) { at::autocast::set_autocast_enabled(kFirst.type(), enabled); };
  is_autocast(true);
  CHECK(full.mm(full).scalar_type() == at::kHalf);
  CHECK(at::linear(full, full).scalar_type() == at::kHalf);
  CHECK(at::conv1d(full.unsqueeze(0), full.unsqueeze(2)).scalar_type() == at::kHalf);
  CHECK(half.exp().scalar_type() == at::kFloat);
  CHECK(half.softmax(1).scalar_type() == at::kFloat);
  CHECK(half.sum().scalar_type() == at::kFloat);
  CHECK(half.norm().scalar_type() == at::kFloat);
  CHECK(at::mse_loss(half, half).scalar_type() == at::kFloat);
  CHECK(at::addcmul(half, full, half).scalar_type() == at::kFloat);
  CHECK(half.relu().scalar_type() == at::kHalf);
  CHECK(full.add(full).scalar_type() == at::kFloat);
  is_autocast(false);
  CHECK(full.mm(full).scalar_type() == at::kFloat);
  at::autocast::clear_cache();
  device::drain();
}

TEST_CASE_METHOD(OnDevices, "Device: complex numbers have parts that share their memory, and conjugates") {
  at::Tensor numbers = at::complex(at::arange(3, on(kFirst).dtype(at::kFloat)), at::ones({3}, on(kFirst)));
  CHECK(at::equal(at::view_as_real(numbers).select(1, 0).cpu(), at::arange(3, at::kFloat)));
  at::view_as_real(numbers).select(1, 1).mul_(2);
  const at::Tensor expected = at::complex(at::arange(3, at::kFloat), at::full({3}, 2.0F));
  CHECK(at::equal(numbers.cpu(), expected));
  CHECK(at::equal(numbers.conj().cpu(), expected.conj().resolve_conj()));
  CHECK(at::equal(numbers.conj().clone().cpu(), expected.conj().resolve_conj()));
  CHECK(at::equal(numbers.conj().resolve_conj().cpu(), expected.conj().resolve_conj()));
  CHECK(at::equal(at::view_as_complex(at::view_as_real(numbers).slice(0, 1)).cpu(), expected.slice(0, 1)));
}

TEST_CASE_METHOD(OnDevices, "Device: contexts are made on the devices that are used, and no others") {
  device::touched();
  const c10::DeviceGuard guard(kSecond);
  at::ones({4}).pin_memory().to(kSecond, /*non_blocking=*/true).add(1).sum().item<float>();
  CHECK(device::touched() == std::vector<int>{1});
}

TEST_CASE("HostAccess: reads the memory of a device", "[.host]") {
  const at::Tensor value = at::ones({5}, on(kSecond));
  device::drain();
  FAIL("read " << *value.const_data_ptr<float>());
}

TEST_CASE("HostAccess: ends the program with the name of the allocation") {
  std::string own = "/proc/self/exe";
  own.resize(4096);
  own.resize(static_cast<size_t>(readlink("/proc/self/exe", own.data(), own.size())));
  const Outcome outcome =
      ChildProcess({.arguments = {own, "HostAccess: reads the memory of a device"}}).wait(std::chrono::seconds(60));
  CHECK(outcome.status == 128 + SIGABRT);
  CHECK_THAT(outcome.errors, ContainsSubstring("The host accessed device memory: byte 0 of 20 bytes"));
  CHECK_THAT(outcome.errors, ContainsSubstring("device 1"));
}

}  // namespace
}  // namespace ddp::test
