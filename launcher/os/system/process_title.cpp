#include "launcher/os/system/process_title.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

namespace launcher {

ProcessTitle::ProcessTitle(int argc, char** argv) {
  ::prctl(PR_GET_NAME, name_.data());
  if (argc == 0) return;
  // The kernel puts the arguments one after the other; the process that changed argv before may have left gaps.
  arguments_ = argv[0];
  char* end = argv[0];
  for (int i = 0; i < argc && argv[i] == end; ++i) end += std::strlen(argv[i]) + 1;
  original_.assign(arguments_, static_cast<std::size_t>(end - arguments_));
}

void ProcessTitle::set(std::string_view title) {
  const std::string name(title.substr(0, title.find(' ')));
  ::prctl(PR_SET_NAME, name.c_str());
  if (original_.empty()) return;
  std::fill_n(arguments_, original_.size(), '\0');
  title.copy(arguments_, original_.size() - 1);
}

void ProcessTitle::restore() {
  ::prctl(PR_SET_NAME, name_.data());
  std::copy(original_.begin(), original_.end(), arguments_);
}

}  // namespace launcher
