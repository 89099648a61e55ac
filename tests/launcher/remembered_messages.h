// Messages that a test looks at afterwards.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/system/line.h"

namespace launcher {

class RememberedMessages : public Messages {
 public:
  void print(std::string_view line) override { lines.emplace_back(line); }
  void print_lines(std::string_view text) override { lines.emplace_back(text); }
  std::vector<std::string> lines;
};

}  // namespace launcher
