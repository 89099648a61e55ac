// Copies lines that hold one of several texts to a file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/local/output/log_file.h"

namespace launcher {

class LineFilter {
 public:
  LineFilter(std::vector<std::string> texts, LogFile file) : texts_(std::move(texts)), file_(std::move(file)) {}

  // `lines`: whole lines, the last one perhaps without its newline.
  void add(std::string_view lines);
  const LogFile& file() const { return file_; }

 private:
  std::vector<std::string> texts_;
  LogFile file_;
};

}  // namespace launcher
