// Which ranks caused the failure of a collective, from what the ranks of the group say. Arithmetic on values: no
// LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/core/call_log.h"

namespace ddp::detail {

/// What is known of a rank when a collective has failed somewhere.
struct RankState {
  enum class Kind {
    kUnknown,       ///< runs Python, or another version: it cannot be asked and is never named
    kNeverArrived,  ///< has not been seen yet
    kSilent,        ///< did not answer
    kAnswered,      ///< lives; `report` says where it is
    kFailed,        ///< a collective failed there as well; `report` is of that moment
    kClosed,        ///< closed its group in order
    kLeftOnError,   ///< left because of something else, as an exception of the program
  };
  Kind kind = Kind::kUnknown;
  RankReport report{};
};

/// The end of an error message, such as "; did not take part in it: rank 2 (no answer: …)", or "" when no rank can be
/// named. `ranks` are the group's, this one's own report among them; `number` is the collective that failed here. A
/// rank is named only when no other explanation is left: a rank whose own collective failed, or which waits in one, is
/// a victim. When ranks have called different things in the same place, the minority is named; without a majority all
/// are listed.
std::string culprits_text(const std::vector<RankState>& ranks, uint64_t number);

/// Whether ranks have called different things in one place, no rank is in the minority, and a rank that lives has not
/// come there yet: what it calls will tell.
bool is_undecided(const std::vector<RankState>& ranks);

/// The same as culprits_text() where the ranks could not connect, which they do before any collective. It names the
/// ranks that gave up or died, else those that never arrived: "; never arrived: rank 1".
std::string connect_culprits_text(const std::vector<RankState>& ranks);

}  // namespace ddp::detail
