#include "ddprun/comm/report.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "comm/group/store.h"

namespace ddp {
namespace {

// torchrun and ddprun read this file after the process has ended. A half-written one would hide the failure, so it
// appears under its name only when it is complete.
void write_error_file(const std::string& path, const std::string& message) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  // The shorter of the two forms that torchrun reads: only this one may have a time below the second, by which ddprun
  // tells the first of several failures.
  const nlohmann::json content{{"message", message}, {"timestamp", std::chrono::duration<double>(now).count()}};
  const std::string text = content.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::string temporary = path + ".tmp." + std::to_string(getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wbe");
  if (file == nullptr) return;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) == 0 && written) {
    std::rename(temporary.c_str(), path.c_str());
  } else {
    unlink(temporary.c_str());
  }
}

}  // namespace

int report(const std::exception& error) noexcept {
  try {
    const std::string message = detail::brief(error);
    const char* rank = std::getenv("RANK");
    const std::string prefix = rank != nullptr ? std::string("rank ") + rank + ": " : "";
    // Most of our messages begin with the rank already.
    const bool named = rank != nullptr && message.rfind(std::string("rank ") + rank, 0) == 0;
    std::fflush(stdout);
    std::fprintf(stderr, "error: %s%s\n", named ? "" : prefix.c_str(), message.c_str());
    if (const char* path = std::getenv("TORCHELASTIC_ERROR_FILE")) write_error_file(path, message);
  } catch (...) {
    std::fputs("error: out of memory while reporting an error\n", stderr);
  }
  return 1;
}

}  // namespace ddp
