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

/// Reads "env://", "tcp://host:port" or "file:///path", each with or without "?rank=R&world_size=N"; "" is "env://".
/// Other parts of a query are ignored. Throws std::invalid_argument with the text that was given and the forms that are
/// expected.
InitMethod parse_init_method(const std::string& url);

/// This rank's numbers in the job: `given` by the program, or from the query, else from the environment; and the
/// address of the store (empty for kFile). Throws std::invalid_argument if they are given twice, or are not known.
RankInfo place_for(const InitMethod& method, const std::optional<RankInfo>& given,
                   const EnvironmentLookup& lookup = process_environment());

}  // namespace ddp::detail
