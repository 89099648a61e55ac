// The encoding of failures in messages between launchers. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

#include "launcher/nodes/control/json_reader.h"
#include "launcher/plan/outcome/job_end.h"

namespace launcher::control {

inline constexpr int kMaxRanks = 1 << 24;
inline constexpr std::size_t kMaxText = 4096;
// Microseconds since 1970: what a clock of nanoseconds can hold.
inline constexpr std::int64_t kMaxClock = std::int64_t{1} << 53;

// Its first `most` bytes, of whole characters.
std::string shortened(const std::string& text, std::size_t most);

nlohmann::json write(const JoinFailure& reason);
nlohmann::json write(const FailureNotice& notice);
// From the member `name` of what is read, with a status of at least `least_status`.
JoinFailure read_reason(JsonReader& reader, const char* name, int least_status = 1);
FailureNotice read_notice(JsonReader& reader, const char* name);

}  // namespace launcher::control
