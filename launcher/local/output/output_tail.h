// The last lines of a rank's standard error, for the report on its failure: whatever the rank prints, little is kept.
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
  // At most kLines lines out of the last kBytes, each as a terminal would show it: without colours, and of lines that
  // were overwritten by carriage returns the last state only.
  std::string lines() const;

 private:
  std::string bytes_;
  bool is_cut_ = false;
};

// The same of a file's end; "" when it cannot be read.
std::string last_lines_of_file(const std::string& path);

}  // namespace launcher
