// Splits one rank's output into lines, and puts the prefix before each. Every byte of the rank is passed on unchanged.
// Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace launcher {

class LinePrefixer {
 public:
  // A longer line is passed on in pieces, to limit the memory. Each piece but the last ends with kContinues.
  static constexpr std::size_t kMaxLineBytes = 64 << 10;
  static constexpr std::string_view kContinues = " [line continues]\n";

  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }
  const std::string& prefix() const { return prefix_; }
  // Appends the lines that `bytes` complete to `out`. A line ends with a newline, or with a carriage return: progress
  // bars rewrite their line with it and may not send a newline for hours.
  void feed(std::string_view bytes, std::string& out);
  // The rank's output has ended: appends the rest, without adding a newline.
  void finish(std::string& out);

 private:
  void emit(std::string_view line, std::string& out) { out.append(prefix_).append(line); }
  void emit_line(std::string_view line, std::string& out);
  void keep(std::string_view rest, std::string& out);

  std::string prefix_;
  std::string partial_;  // the incomplete line, without a newline
};

}  // namespace launcher
