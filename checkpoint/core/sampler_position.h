// The position of each rank's sampler, so that a checkpoint does not store rank 0's position for all ranks if the
// positions differ. No LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp {

/// The numbers in a sampler's state.
struct SamplerPosition {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t consumed = 0;  ///< samples of the epoch that all ranks together have used; -1: all of a stream's
  int64_t length = 0;    ///< samples in the epoch; -1: a stream, whose length is unknown
};

/// The place in a state that is a JSON object of these four numbers, as our samplers and loaders save; nothing in one
/// of another form.
std::optional<SamplerPosition> sampler_position(const std::string& state);

/// One JSON object on one line, without blanks.
std::string to_json(const SamplerPosition& place);

/// A text with the ranks whose samplers have another position than rank 0's, and both positions; empty if there are no
/// such ranks. `places` are in rank order; ranks without one are left out. At an epoch's end shares may be uneven by
/// one sample.
std::string different_positions(const std::vector<std::optional<SamplerPosition>>& places);

}  // namespace ddp
