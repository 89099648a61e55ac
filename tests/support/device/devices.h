// What all parts of the simulated accelerator share: one object a process, made when the library is loaded.
#pragma once

#include <c10/core/DispatchKey.h>

#include <atomic>
#include <cstdint>

#include "tests/support/device/allocator.h"
#include "tests/support/device/engine.h"
#include "tests/support/device/ledger.h"
#include "tests/support/device/memory.h"
#include "tests/support/stream_books.h"

namespace ddp::test::device {

struct Devices {
  Devices();

  const c10::DeviceType type;
  const c10::DispatchKey key;
  const int count;
  std::atomic<uint64_t> allocations{0};  // of memory of devices and of page-locked memory
  StreamBooks books;
  Ledger ledger{};
  Memory memory;
  Engine engine;
  DeviceAllocator allocator;
};

Devices& devices();

inline StreamKey key_of(c10::Stream stream) {
  return {stream.device_index(), stream.id()};
}
c10::Stream stream_of(StreamKey key);
inline bool is_ours(c10::Device device) {
  return device.type() == devices().type;
}

/// The calling thread's.
c10::Device current_device();
c10::Stream current_stream(int device);

/// `later` waits for what is queued on `earlier`, as by an event.
void follow(c10::Stream later, c10::Stream earlier);
/// The host waits for what is queued, and learns of the kernels' errors. Counted under `why`.
void wait_for(c10::Stream stream, const std::string& why);

}  // namespace ddp::test::device
