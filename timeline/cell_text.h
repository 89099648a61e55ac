// What is in the cells of a report's tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::timelines {

// "12.3 ms", "4.1 us"
std::string time_text(double nanoseconds);
// "12.3 %"; "-" of nothing.
std::string share_text(std::int64_t part, std::int64_t whole);
// "332 bytes", "26.5 MB"
std::string bytes_text(std::int64_t bytes);
// A name, which may be anything, as a terminal can show it.
std::string shortened(const std::string& name);
// Of a column for a range of the program's own, which may be called as one that is not.
std::string title(const std::string& name, const std::vector<std::string>& taken);

}  // namespace ddp::timelines
