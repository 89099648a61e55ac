// How this process shows itself to ps, pkill and killall: its short name and its command line.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace launcher {

class ProcessTitle {
 public:
  // Of main(); `argv` stays main's. The strings in it are overwritten by set().
  ProcessTitle(int argc, char** argv);

  // The command line, as far as there is room for it, and its first word (15 bytes of it) as the short name.
  void set(std::string_view title);
  // As the process was started.
  void restore();

 private:
  char* arguments_ = nullptr;  // the kernel shows this memory as the command line
  std::string original_;
  std::array<char, 16> name_{};
};

}  // namespace launcher
