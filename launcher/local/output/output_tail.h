// Keeps the last lines of a rank's standard error for the report on its failure. Its size is limited, however much the
// rank prints.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace launcher {

class OutputTail {
 public:
  static constexpr std::size_t kBytes = 2048;
  static constexpr std::size_t kLines = 8;

  void add(std::string_view bytes);
  // Returns at most kLines lines of the last kBytes, as a terminal would show them: without colours, and with only the
  // last state of lines that were overwritten by carriage returns.
  std::string lines() const;

 private:
  std::string bytes_;
  bool is_truncated_ = false;
};

// Returns the last lines of a file in the same form; "" when it cannot be read.
std::string last_lines_of_file(const std::string& path);

}  // namespace launcher
