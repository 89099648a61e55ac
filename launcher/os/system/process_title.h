// Sets how ps, pkill and killall show this process: its short name and its command line.
#pragma once

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace launcher {

class ProcessTitle {
 public:
  // `argc` and `argv` are main()'s. set() overwrites the strings in `argv`.
  ProcessTitle(int argc, char** argv) {
    ::prctl(PR_GET_NAME, name_.data());
    if (argc == 0) return;
    // The kernel stores the arguments one after the other; an earlier change of argv may have left gaps.
    arguments_ = argv[0];
    char* end = argv[0];
    for (int i = 0; i < argc && argv[i] == end; ++i) end += std::strlen(argv[i]) + 1;
    original_.assign(arguments_, static_cast<std::size_t>(end - arguments_));
  }

  // Sets the command line, as far as there is room, and its first word (15 bytes of it) as the short name.
  void set(std::string_view title) {
    const std::string name(title.substr(0, title.find(' ')));
    ::prctl(PR_SET_NAME, name.c_str());
    if (original_.empty()) return;
    std::fill_n(arguments_, original_.size(), '\0');
    title.copy(arguments_, original_.size() - 1);
  }
  void restore() {
    ::prctl(PR_SET_NAME, name_.data());
    std::copy(original_.begin(), original_.end(), arguments_);
  }

 private:
  char* arguments_ = nullptr;  // the kernel shows this memory as the command line
  std::string original_;
  std::array<char, 16> name_{};
};

}  // namespace launcher
