#include "ddprun/comm/report.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/block_file_size_signal.h"
#include "comm/group/store.h"

namespace ddp {
namespace {

// Most of our messages begin with the rank already; "rank 30" is not rank 3.
bool begins_with(const std::string& message, const std::string& name) {
  return message.starts_with(name) &&
         (message.size() == name.size() || message[name.size()] < '0' || message[name.size()] > '9');
}

// torchrun and ddprun read this file after the process has ended. An incomplete file would hide the failure, so the
// file gets its name only when it is complete.
void write_error_file(const std::string& path, const std::string& message) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  // The shorter of the two forms that torchrun reads: only this one may have a time below the second, by which ddprun
  // identifies the first of several failures.
  const nlohmann::json content{{"message", message}, {"timestamp", std::chrono::duration<double>(now).count()}};
  const std::string text = content.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::string temporary = path + ".tmp." + std::to_string(getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wbe");
  if (file == nullptr) return;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool is_whole = std::fclose(file) == 0 && written;
  if (!is_whole || std::rename(temporary.c_str(), path.c_str()) != 0) unlink(temporary.c_str());
}

}  // namespace

int report(const std::exception& error) noexcept {
  try {
    const std::string message = detail::message_of(error);
    const char* rank = std::getenv("RANK");
    const std::string name = rank != nullptr && *rank != '\0' ? std::string("rank ") + rank : "";
    const std::string prefix = name.empty() || begins_with(message, name) ? "" : name + ": ";
    const detail::BlockFileSizeSignal blocked;  // a file-size limit must not replace the failure's message
    std::fflush(stdout);
    std::fprintf(stderr, "error: %s%s\n", prefix.c_str(), message.c_str());
    const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
    if (path != nullptr && *path != '\0') write_error_file(path, message);
  } catch (...) {
    std::fputs("error: out of memory while reporting an error\n", stderr);
  }
  return 1;
}

}  // namespace ddp
