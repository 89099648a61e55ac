// One of this process's output descriptors, written without ever blocking, and without making it non-blocking for the
// programs that share it.
#pragma once

#include <sys/types.h>

#include <string_view>

#include "launcher/os/system/unique_fd.h"

namespace launcher {

class UnblockedOutput {
 public:
  // `fd` must stay open as long as the object.
  explicit UnblockedOutput(int fd);

  // As write(2): what was taken, or -1 and errno, EAGAIN when nothing can be written now.
  ssize_t write(std::string_view bytes) const;
  // To wait for room with.
  int fd() const { return fd_; }
  // A file takes everything at once; epoll refuses it.
  bool is_file() const { return kind_ == Kind::kFile; }
  // errno when the descriptor cannot be used at all, else 0.
  int error() const { return error_; }

 private:
  enum class Kind { kFile, kOwnDescription, kSocket, kShared };

  int fd_;
  UniqueFd own_;  // the same pipe or terminal opened once more, non-blocking
  Kind kind_ = Kind::kFile;
  int error_ = 0;
};

}  // namespace launcher
