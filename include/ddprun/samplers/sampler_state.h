// Where a job stands within an epoch. No LibTorch.
#pragma once

#include <cstdint>
#include <string>

namespace ddp {

/// Everything that the ranks need to go on in mid-epoch, in any number: the same for all of them, so rank 0's is the
/// one to save.
struct SamplerState {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t consumed = 0;  ///< samples of the epoch that all ranks together have used
  int64_t length = 0;    ///< samples in the epoch, before any is repeated or left out

  bool operator==(const SamplerState&) const = default;
};

/// One JSON object of these four numbers, as python/ddprun_checkpoint.py reads and writes it.
std::string to_json(const SamplerState& state);
/// Throws std::invalid_argument when `text` is anything else.
SamplerState sampler_state_from_json(const std::string& text);

}  // namespace ddp
