// init_process_group()'s URL: where the ranks meet, as in torch.distributed. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ddprun/base/rank_info.h>

namespace ddp::detail {

struct InitMethod {
  enum class Kind : uint8_t { kEnvironment, kTcp, kFile };
  Kind kind = Kind::kEnvironment;
  std::string host{};  ///< kTcp
  uint16_t port = 0;
  std::string path{};  ///< kFile, absolute
  // From the query.
  std::optional<int> rank{};
  std::optional<int> world_size{};
};

/// Reads "env://", "tcp://host:port" or "file:///path", each with or without "?rank=R&world_size=N"; "" is
/// "env://". What else a query has is ignored. Throws std::invalid_argument with what was got and what is expected.
InitMethod parse_init_method(const std::string& url);

/// This rank's place in the job: `given` by the program, or of the query, else of the environment; and the address of
/// the store that is meant (none of kFile). Throws std::invalid_argument when the place is given twice, or is not
/// known.
RankInfo place_for(const InitMethod& method, const std::optional<RankInfo>& given,
                   const EnvironmentLookup& lookup = process_environment());

}  // namespace ddp::detail
