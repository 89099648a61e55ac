// Bodies that need a process of their own: masks, dispositions, children and subreapers are for all of one.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "launcher/os/system/unique_fd.h"

namespace launcher {

// What `body` returns in a process of its own, or how that process failed. Catch2's assertions are not for it.
inline std::string in_child(const std::function<std::string()>& body) {
  const UniqueFd file(::memfd_create("answer", MFD_CLOEXEC));
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    for (int number = 1; number < 32; ++number) ::signal(number, SIG_DFL);  // Catch2 has handlers of its own
    std::string text;
    try {
      text = body();
    } catch (const std::exception& error) {
      text = std::string("threw: ") + error.what();
    }
    ::_exit(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
  std::array<char, 4096> text{};
  const ssize_t count = ::pread(file.get(), text.data(), text.size(), 0);
  if (WEXITSTATUS(status) != 0 || count < 0) return "ended with status " + std::to_string(WEXITSTATUS(status));
  return {text.data(), static_cast<std::size_t>(count)};
}

// False when the condition does not come true; that takes long.
inline bool comes_true(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace launcher
