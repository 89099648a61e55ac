// Random numbers for the augmentation of one sample: no state that threads or ranks could share. No LibTorch.
#pragma once

#include <cstdint>

namespace ddp {

/// A stream of random numbers that depends on seed, epoch and index alone: SplitMix64 (Steele, Lea and Flood, 2014).
class SampleRandom {
 public:
  SampleRandom(uint64_t seed, int64_t epoch, int64_t index)
      : state_(mix(mix(mix(seed) ^ static_cast<uint64_t>(epoch)) ^ static_cast<uint64_t>(index))) {}

  uint64_t bits() { return state_ = mix(state_); }

  /// From 0 to below 1.
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double uniform(double least, double most) { return least + (most - least) * uniform(); }

  /// 0 … count-1; count at most 2^32. (Scaled, not divided: the bias is below 2^-32.)
  int64_t below(uint64_t count) { return static_cast<int64_t>((bits() >> 32) * count >> 32); }

 private:
  static uint64_t mix(uint64_t value) {
    value += 0x9E3779B97F4A7C15;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
    return value ^ (value >> 31);
  }

  uint64_t state_;
};

}  // namespace ddp
