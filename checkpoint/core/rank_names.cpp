#include "checkpoint/core/rank_names.h"

#include <charconv>
#include <limits>
#include <system_error>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/storage/damage.h"

namespace ddp {

std::optional<uint64_t> rank_in_name(std::string_view name) {
  constexpr std::string_view kPrefix = "rank.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const auto* last = name.data() + name.size();
  uint64_t rank = 0;
  const auto [end, error] = std::from_chars(name.data(), last, rank);
  if (end == name.data() || end == last || *end != '.') return std::nullopt;
  return error == std::errc() ? rank : std::numeric_limits<uint64_t>::max();
}

void check_rank_name(const std::string& source, const std::string& name, int world_size) {
  const auto rank = rank_in_name(name);
  if (!rank || *rank < static_cast<uint64_t>(world_size)) return;
  throw storage::DamagedCheckpoint(source + " has " + safetensors::quote_name(name) +
                                   ", but the manifest has world_size " + std::to_string(world_size));
}

}  // namespace ddp
