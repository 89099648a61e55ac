// This machine's name, for messages.
#pragma once

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "launcher/os/system/launch_error.h"

namespace launcher {

// Returns 32 hexadecimal digits. Throws LaunchError where the kernel has no random numbers. It does not use
// std::random_device, because that of the static libstdc++ needs the glibc with which it was compiled.
inline std::string random_id() {
  std::array<unsigned, 4> words{};
  ssize_t size = 0;
  do {  // so few bytes are returned at once
    size = ::getrandom(words.data(), sizeof(words), 0);
  } while (size < 0 && errno == EINTR);
  if (size != sizeof(words)) throw LaunchError(std::string("no random numbers: getrandom: ") + std::strerror(errno));
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%08x%08x%08x%08x", words[0], words[1], words[2], words[3]);
  return text.data();
}

inline std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

}  // namespace launcher
