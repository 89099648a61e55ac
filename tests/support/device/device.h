// A simulated accelerator for LibTorch, from libddprun_test_device.so: several devices whose memory the host cannot
// touch, whose streams are queues that threads of their own work off in random order, and whose operators are the
// CPU's.
//
// It takes the place of CUDA (or of PrivateUse1 where DDPRUN_TEST_DEVICE_TYPE=privateuseone): the library, LibTorch's
// autograd and c10d then take the branches that they take on a GPU. A program links the library, or loads it unchanged
// as the CUDA part, with DDPRUN_CUDA=1 and DDPRUN_CUDA_PLUGIN; its collectives are then those of communicator.h.
// DDPRUN_TEST_DEVICES says how many there are (4), DDPRUN_TEST_DEVICE_SEED the schedule.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::test::device {

c10::Device device_at(int index);
int count();

/// The order among streams, and the pauses, from now on.
void set_schedule(uint64_t seed);
/// Launches return when they have been carried out: what the program's own order gives.
void run_in_program_order();

/// A stream that nothing has used.
c10::Stream new_stream(int index);

/// `later` waits for what is queued on `earlier`; for a test's own use, which mutation:: does not count.
void order(c10::Stream earlier, c10::Stream later);

/// The host waits for all devices, while no other thread uses one. Not counted.
void drain();

/// What was done that a GPU would do wrong now and then, in words; forgets it. Use of memory without waiting for its
/// last user, memory let go while another stream uses it, page-locked memory changed under a copy, events and tensors
/// of the wrong device, copies of pageable memory that were asked not to wait.
std::vector<std::string> faults();

struct Counts {
  int64_t launches = 0;
  int64_t allocations = 0;
  int64_t to_device = 0;
  int64_t to_host = 0;
  int64_t within_device = 0;
  int64_t between_devices = 0;
  int64_t pageable = 0;      ///< of those to the device and to the host, through memory that is not page-locked
  int64_t wrong_device = 0;  ///< uses of tensors, events or communicators of another device; faults as well
  std::vector<std::string> host_waits{};  ///< what made the host wait for a device and who called that, in order
};

/// Since the process began, or the last call of forget_counts().
Counts counts();
void forget_counts();

/// Which devices have been used in a way that makes a context there (allocations, launches, streams, events;
/// page-locked memory where there is none at all), since the last call.
std::vector<int> touched();

/// Device memory that tensors still hold, and page-locked memory, in words.
std::vector<std::string> live_memory();
/// Of it, what was allocated after the allocation of this number.
std::vector<std::string> memory_kept_since(uint64_t number);
uint64_t last_allocation();

/// Places in the code that make a stream wait for an event, or call record_stream(), and what happens without one of
/// them.
namespace mutation {
/// From now on remembers the places, and forgets those before.
void watch();
/// Those met since watch(), outside LibTorch and the device itself, in words.
std::vector<std::string> places();
/// Leaves out what one of the places does, by its text; "" leaves out none.
void leave_out(const std::string& place);
/// Stops watching; nothing is left out any more.
void stop();
}  // namespace mutation

}  // namespace ddp::test::device
