// Names in ranks.safetensors: "rank.2.rng.cpu" is what rank 2 saved. No LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddp {

/// 2 of "rank.2.rng.cpu", the largest number where there are too many digits; nothing for other names.
std::optional<uint64_t> rank_in_name(std::string_view name);

/// Throws storage::DamagedCheckpoint, naming `source`, for the name of a rank that there is not among `world_size`.
/// Other names pass.
void check_rank_name(const std::string& source, const std::string& name, int world_size);

}  // namespace ddp
