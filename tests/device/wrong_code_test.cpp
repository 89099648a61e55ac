// Wrong code, written on purpose, of every kind that the simulated devices are there to catch: each case has its right
// twin, of which nothing is said. In every schedule, not only where it happened to go wrong.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/device/device.h"
#include "tests/support/device/watch.h"

namespace ddp::test {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;

const c10::Device kOne = device::device_at(0);
const c10::Device kOther = device::device_at(1);

at::TensorOptions placed_on(c10::Device device) {
  return at::TensorOptions(device);
}
c10::Stream current(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}
void put_in_order(c10::Stream earlier, c10::Stream later) {
  c10::Event reached(earlier.device_type());
  reached.record(earlier);
  reached.block(later);
}
void wait_for(c10::Stream stream) {
  c10::Event reached(stream.device_type());
  reached.record(stream);
  reached.synchronize();
}

class WrongCode {
 protected:
  static constexpr uint64_t kSchedules = 20;

  // `code(true)` is right and `code(false)` is not.
  static void expect_caught(const std::function<void(bool right)>& code, const std::string& words) {
    for (uint64_t seed = 0; seed < kSchedules; ++seed) {
      INFO("schedule " << seed);
      device::set_schedule(seed);
      code(true);
      device::drain();
      REQUIRE_THAT(device::faults(), IsEmpty());
      code(false);
      device::drain();
      REQUIRE_THAT(device::faults(), Contains(ContainsSubstring(words)));
    }
  }
  WrongCode() {
    device::drain();
    device::faults();
  }
};

TEST_CASE_METHOD(WrongCode, "WrongCode: a copy on a side stream that is used without a wait") {
  expect_caught(
      [](bool right) {
        const at::Tensor source = at::ones({64}).pin_memory();
        const c10::Stream side = device::new_stream(0);
        at::Tensor copy = at::zeros({64}, placed_on(kOne));
        put_in_order(current(kOne), side);
        {
          const c10::StreamGuard guard(side);
          copy.copy_(source, /*non_blocking=*/true);
        }
        copy.record_stream(side);
        if (right) put_in_order(side, current(kOne));
        copy.add(1);
        wait_for(side);
      },
      "does not wait for copy_");
}

TEST_CASE_METHOD(WrongCode, "WrongCode: a tensor that is changed while another stream still reads it") {
  expect_caught(
      [](bool right) {
        at::Tensor value = at::ones({64}, placed_on(kOne));
        const c10::Stream side = device::new_stream(0);
        put_in_order(current(kOne), side);
        {
          const c10::StreamGuard guard(side);
          value.mul(2);
        }
        value.record_stream(side);
        if (right) put_in_order(side, current(kOne));
        value.zero_();
      },
      "does not wait for");
}

TEST_CASE_METHOD(WrongCode, "WrongCode: an event that is recorded before what it should follow") {
  expect_caught(
      [](bool right) {
        at::Tensor value = at::ones({64}, placed_on(kOne));
        const c10::Stream side = device::new_stream(0);
        c10::Event reached(kOne.type());
        if (!right) reached.record(current(kOne));
        value.add_(1);
        if (right) reached.record(current(kOne));
        reached.block(side);
        value.record_stream(side);
        const c10::StreamGuard guard(side);
        value.mul(2);
      },
      "does not wait for aten::add");
}

TEST_CASE_METHOD(WrongCode, "WrongCode: an event that nobody has recorded") {
  expect_caught(
      [](bool right) {
        at::Tensor value = at::ones({64}, placed_on(kOne));
        const c10::Stream side = device::new_stream(0);
        c10::Event reached(kOne.type());
        if (right) reached.record(current(kOne));
        reached.block(side);
        value.record_stream(side);
        const c10::StreamGuard guard(side);
        value.mul(2);
      },
      "does not wait for");
}

TEST_CASE_METHOD(WrongCode, "WrongCode: memory that goes while another stream uses it") {
  expect_caught(
      [](bool right) {
        at::Tensor value = at::ones({64}, placed_on(kOne));
        const c10::Stream side = device::new_stream(0);
        put_in_order(current(kOne), side);
        const c10::StreamGuard guard(side);
        value.mul(2);
        if (right) value.record_stream(side);
        value.reset();
      },
      "no record_stream");
}

TEST_CASE_METHOD(WrongCode, "WrongCode: record_stream for another stream than the one that uses the memory") {
  expect_caught(
      [](bool right) {
        at::Tensor value = at::ones({64}, placed_on(kOne));
        const c10::Stream side = device::new_stream(0);
        put_in_order(current(kOne), side);
        const c10::StreamGuard guard(side);
        value.mul(2);
        value.record_stream(right ? side : device::new_stream(0));
        value.reset();
      },
      "no record_stream");
}

TEST_CASE_METHOD(WrongCode,
                 "WrongCode: a page-locked buffer that is filled again before its copy is known to have ended") {
  expect_caught(
      [](bool right) {
        const at::Tensor buffer = at::ones({256}).pin_memory();
        const at::Tensor first = buffer.to(kOne, /*non_blocking=*/true);
        if (right) wait_for(current(kOne));
        buffer.fill_(2);
        wait_for(current(kOne));
      },
      "was changed before the host waited for the copy from it");
}

TEST_CASE_METHOD(WrongCode, "WrongCode: a page-locked buffer of which one number is changed to the same number") {
  expect_caught(
      [](bool right) {
        const at::Tensor buffer = at::ones({256}).pin_memory();
        const at::Tensor first = buffer.to(kOne, /*non_blocking=*/true);
        if (right) wait_for(current(kOne));
        buffer[17] = 1;
        wait_for(current(kOne));
      },
      "was changed before");
}

TEST_CASE_METHOD(WrongCode, "WrongCode: a copy to the host that is read before it is known to have ended") {
  expect_caught(
      [](bool right) {
        const at::Tensor value = at::ones({256}, placed_on(kOne));
        const at::Tensor on_host = at::empty({256}, at::TensorOptions().pinned_memory(true));
        on_host.copy_(value, /*non_blocking=*/true);
        if (right) wait_for(current(kOne));
        static_cast<void>(on_host.sum());
        wait_for(current(kOne));
      },
      "was used before the host waited for the copy to it");
}

TEST_CASE_METHOD(WrongCode, "WrongCode: waiting for an event of before the copy does not make its result readable") {
  expect_caught(
      [](bool right) {
        const at::Tensor value = at::ones({256}, placed_on(kOne));
        const at::Tensor on_host = at::empty({256}, at::TensorOptions().pinned_memory(true));
        c10::Event reached(kOne.type());
        if (!right) reached.record(current(kOne));
        on_host.copy_(value, /*non_blocking=*/true);
        if (right) reached.record(current(kOne));
        reached.synchronize();
        static_cast<void>(on_host.sum());
        wait_for(current(kOne));
      },
      "was used before");
}

TEST_CASE_METHOD(WrongCode, "WrongCode: asking whether an event is reached until it is makes the result readable") {
  device::set_schedule(1);
  const at::Tensor value = at::ones({256}, placed_on(kOne));
  const at::Tensor on_host = at::empty({256}, at::TensorOptions().pinned_memory(true));
  on_host.copy_(value, /*non_blocking=*/true);
  c10::Event reached(kOne.type());
  reached.record(current(kOne));
  while (!reached.query()) std::this_thread::yield();
  CHECK(on_host.sum().item<float>() == 256);
  device::drain();
  CHECK_THAT(device::faults(), IsEmpty());
}

TEST_CASE_METHOD(WrongCode, "WrongCode: a thread that has not made its device current gets memory of another") {
  const at::Tensor value = at::ones({64}, placed_on(kOther));
  const auto in_a_thread = [&](bool right) {
    std::string message;
    std::thread([&] {
      const c10::OptionalDeviceGuard guard(right ? std::optional(kOther) : std::nullopt);
      const at::Tensor more = at::ones({64}, at::TensorOptions(kOther.type()));
      try {
        value.add(more);
      } catch (const c10::Error& error) {
        message = error.what_without_backtrace();
      }
    }).join();
    return message;
  };
  CHECK(in_a_thread(true).empty());
  device::drain();
  device::touched();
  CHECK_THAT(in_a_thread(false), ContainsSubstring("Expected all tensors to be on the same device"));
  CHECK_THAT(device::touched(), Contains(0));
  device::drain();
}

TEST_CASE_METHOD(WrongCode, "WrongCode: the current stream of one device does not order the memory of another") {
  expect_caught(
      [](bool right) {
        at::Tensor value = at::ones({64}, placed_on(kOther));
        const c10::Stream side = device::new_stream(1);
        put_in_order(current(right ? kOther : kOne), side);
        value.record_stream(side);
        const c10::StreamGuard guard(side);
        value.mul(2);
      },
      "does not wait for");
}

TEST_CASE_METHOD(WrongCode, "WrongCode: memory that is read before anything was written there") {
  expect_caught(
      [](bool right) {
        at::Tensor value = at::empty({64}, placed_on(kOne));
        if (right) value.zero_();
        value.add(1);
      },
      "that nothing has written");
}

TEST_CASE_METHOD(WrongCode, "WrongCode: a copy from pageable memory that is asked not to wait") {
  expect_caught(
      [](bool right) {
        const at::Tensor source = right ? at::ones({64}).pin_memory() : at::ones({64});
        source.to(kOne, /*non_blocking=*/true).add(1);
      },
      "from the host's pageable memory was asked not to wait, by ");
}

TEST_CASE_METHOD(WrongCode, "WrongCode: what is wrong is told with the allocation and the program that does it") {
  const c10::Stream side = device::new_stream(0);
  at::Tensor value = at::ones({25}, placed_on(kOne));
  const std::string name = "100 bytes, allocation " + std::to_string(device::last_allocation()) + ", of stream 0";
  {
    const c10::StreamGuard guard(side);
    value.mul_(2);
  }
  value.reset();
  device::drain();
  const std::vector<std::string> faults = device::faults();
  CHECK_THAT(faults, Contains(ContainsSubstring("does not wait for") && ContainsSubstring(name) &&
                              ContainsSubstring("by test_device_unit+0x")));
  CHECK_THAT(faults, Contains(ContainsSubstring("no record_stream") && ContainsSubstring(name)));
  at::empty({25}, placed_on(kOne)).add(1);
  CHECK_THAT(device::faults(), Contains(ContainsSubstring("nothing has written: 100 bytes, allocation")));
}

TEST_CASE_METHOD(WrongCode, "WrongCode: uses of a wrong device are counted") {
  device::forget_counts();
  // Some LibTorch refuses before a device hears of them.
  CHECK_THROWS(at::ones({2, 2}, placed_on(kOne)).mm(at::ones({2, 2}, placed_on(kOther))));
  CHECK_THROWS(at::ones({2, 2}, placed_on(kOne)).mm(at::ones({2, 2})));
  CHECK(device::counts().wrong_device == 2);
  device::faults();
}

TEST_CASE_METHOD(WrongCode, "WrongCode: memory that is never let go is told after the test") {
  device::look_back();
  auto* const kept = new std::vector<at::Tensor>{at::ones({64}, placed_on(kOne)), at::ones({8}).pin_memory()};
  const std::string text = device::look_back();
  CHECK_THAT(text, ContainsSubstring("never let go: 256 bytes"));
  CHECK_THAT(text, ContainsSubstring("never let go: page-locked memory"));
  delete kept;
  CHECK(device::look_back().empty());
}

TEST_CASE_METHOD(WrongCode, "WrongCode: memory that another thread lets go of a moment later is none that is kept") {
  device::look_back();
  std::thread late([kept = at::ones({64}, placed_on(kOne))]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    kept.reset();
  });
  CHECK_THAT(device::look_back(), IsEmpty());
  late.join();
}

}  // namespace
}  // namespace ddp::test
