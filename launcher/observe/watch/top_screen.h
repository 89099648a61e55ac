// The screen of `ddprun top` for a terminal of any size, and what its keys do. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace launcher {

struct TopState {
  std::size_t first_line = 0;         // the first line that is shown, if not all fit on the screen
  std::string filter{};               // rows without it are left out
  bool is_typing = false;             // true while the filter is being typed
  bool wants_stacks = false;          // true after the key for stacks was pressed
  std::vector<std::string> stacks{};  // shown instead of the jobs
  bool quits = false;
};

// The bytes of one key, such as "q" or "\x1b[A".
void press_key(TopState& state, std::string_view key);

// Returns at most `rows` lines of at most `columns` characters. For each job: its name, a hang and stragglers, then its
// ranks. Ranks that cause a hang, delay others or differ from most come first. If there are too many, equal ranks share
// a row. Columns that do not fit are left out. Jobs that hang come first. `problems` are those of jobs that do not
// answer.
std::vector<std::string> top_screen(const std::vector<nlohmann::ordered_json>& jobs,
                                    const std::vector<std::string>& problems, const TopState& state,
                                    std::size_t columns, std::size_t rows);

}  // namespace launcher
