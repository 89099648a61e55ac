// What one rank does for all: printing, writing files. No communication here.
#pragma once

#include <cstdio>
#include <sstream>
#include <string>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// True on rank 0, the one that prints, logs and writes files.
inline bool is_main_process(const GroupHandle& group) {
  return group.rank() == 0;
}

/// Writes the parts, one after the other as `<<` shows them, and a line end to standard output at once, on rank 0 only;
/// elsewhere they are not even formatted. Any rank may call it.
template <typename... Parts>
void print_on_main(const GroupHandle& group, const Parts&... parts) {
  if (!is_main_process(group)) return;
  std::ostringstream line;
  (line << ... << parts) << '\n';
  const std::string text = line.str();
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace ddp
