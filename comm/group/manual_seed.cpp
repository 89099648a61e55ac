#include "ddprun/comm/manual_seed.h"

#include <ATen/Context.h>

#include "comm/group/group_state.h"

namespace ddp {
namespace {

void seed_generator(at::Generator generator, uint64_t seed) {
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

void seed_generators(uint64_t seed, c10::Device device) {
  seed_generator(at::globalContext().defaultGenerator(c10::Device(c10::kCPU)), seed);
  if (!device.is_cpu()) seed_generator(at::globalContext().defaultGenerator(device), seed);
}

// splitmix64's finaliser (Steele, Lea, Flood 2014): neighbouring (seed, rank) pairs must not give overlapping streams,
// which seed + rank would: rank 1 of seed 0 would repeat rank 0 of seed 1.
uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

}  // namespace

void manual_seed(uint64_t seed, const GroupHandle& group) {
  seed_generators(seed, group.device());
  group.state().set_pending_seed(seed);
}

void seed_per_rank(uint64_t seed, const GroupHandle& group) {
  seed_generators(mix(mix(seed) + static_cast<uint64_t>(group.rank()) + 1), group.device());
}

void take_rank_stream(const GroupHandle& group) {
  if (const auto seed = group.state().take_pending_seed()) seed_per_rank(*seed, group);
}

}  // namespace ddp
