// Internal: where a table continues that a run was killed in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <ddprun/monitor/metrics_file.h>

namespace ddp {

/// Where the first row begins whose whole number in `column` is at least `number`; nothing where there is none.
std::optional<size_t> first_row_from(std::string_view content, MetricsFormat format, const std::string& column,
                                     int64_t number);

}  // namespace ddp
