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
// The limit of times in microseconds since 1970: a clock of nanoseconds can represent it.
inline constexpr std::int64_t kMaxClock = std::int64_t{1} << 53;

// Returns the first `most` bytes, without cutting a character.
std::string shortened(const std::string& text, std::size_t most);

nlohmann::json write(const JoinFailure& reason);
nlohmann::json write(const FailureNotice& notice);
// Reads the member `name`, whose status is at least `least_status`.
JoinFailure read_reason(JsonReader& reader, const char* name, int least_status = 1);
FailureNotice read_notice(JsonReader& reader, const char* name);

}  // namespace launcher::control
