#include "data/formats/byte_stream.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

#include <ddprun/data/byte_source.h>

#include "data/formats/open_file.h"

namespace ddp {
namespace {

constexpr std::string_view kPipe = "pipe:";
constexpr std::string_view kFile = "file:";
constexpr unsigned kBufferBytes = 1U << 18;

struct Command {
  pid_t process = 0;
  int output = -1;
};

/// Commands inherit ignored and blocked signals. A process with a process group ignores SIGPIPE: the first command of a
/// pipeline would then write for ever after the next one has ended.
void set_signals(posix_spawnattr_t& attributes) {
  sigset_t signals{};
  ::sigemptyset(&signals);
  ::posix_spawnattr_setsigmask(&attributes, &signals);
  for (const int number : {SIGPIPE, SIGXFSZ}) ::sigaddset(&signals, number);
  ::posix_spawnattr_setsigdefault(&attributes, &signals);
}

Command start_command(const std::string& command, const std::string& url) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw DataError(url, "cannot be started: " + std::generic_category().message(errno));
  }
  posix_spawn_file_actions_t actions{};
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawnattr_t attributes{};
  ::posix_spawnattr_init(&attributes);
  set_signals(attributes);
  // In a process group of its own, so that all of a pipeline can be ended.
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::string shell = "sh", option = "-c", text = command;
  std::array<char*, 4> words = {shell.data(), option.data(), text.data(), nullptr};
  Command started{.output = ends[0]};
  const int error = ::posix_spawn(&started.process, "/bin/sh", &actions, &attributes, words.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error == 0) return started;
  ::close(ends[0]);
  throw DataError(url, "cannot be started: " + std::generic_category().message(error));
}

int wait_for(pid_t process) {
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

struct ByteStream::Stream {
  explicit Stream(int file) : gz(::gzdopen(file, "rb")) {
    if (gz == nullptr) throw std::bad_alloc();
    ::gzbuffer(gz, kBufferBytes);
  }
  ~Stream() { ::gzclose(gz); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  gzFile gz;
};

std::string local_path(const std::string& url) {
  if (url.starts_with(kPipe)) return "";
  return url.starts_with(kFile) ? url.substr(kFile.size()) : url;
}

ByteStream::ByteStream(const std::string& url) : url_(url) {
  if (const std::string path = local_path(url); path.empty()) {
    const Command started = start_command(url.substr(kPipe.size()), url);
    command_ = started.process;
    stream_ = std::make_unique<Stream>(started.output);
  } else if (const auto scheme = path.find("://"); scheme != std::string::npos) {
    throw DataError(url,
                    "expected a file or pipe:COMMAND; read it by a command, such as 'pipe:curl -sfL " + path + "'");
  } else {
    OpenFile file(path);
    stream_ = std::make_unique<Stream>(file.get());
    file.release();
  }
}

ByteStream::~ByteStream() {
  stream_.reset();
  if (command_ == 0) return;
  ::kill(-command_, SIGKILL);
  wait_for(command_);
}

size_t ByteStream::read(std::span<uint8_t> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    constexpr size_t kMost = size_t{1} << 30;  // gzread counts in int
    const auto wanted = static_cast<unsigned>(std::min(kMost, bytes.size() - done));
    const int count = ::gzread(stream_->gz, bytes.data() + done, wanted);
    int code = Z_OK;
    const std::string message = ::gzerror(stream_->gz, &code);
    if (count < 0 || code == Z_BUF_ERROR) {
      throw DataError(url_, "cannot be read after byte " + std::to_string(position_ + done) + ": " +
                                (code == Z_ERRNO ? std::generic_category().message(errno)
                                                 : "the gzip data is damaged or cut short"));
    }
    done += static_cast<size_t>(count);
    if (count == 0) break;
  }
  position_ += done;
  if (done < bytes.size()) end_of_command();
  return done;
}

void ByteStream::end_of_command() {
  if (command_ == 0) return;
  const int status = wait_for(std::exchange(command_, 0));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  throw DataError(url_, WIFEXITED(status) ? "the command ended with status " + std::to_string(WEXITSTATUS(status))
                                          : "the command was ended by signal " + std::to_string(WTERMSIG(status)));
}

uint64_t ByteStream::skip(uint64_t count) {
  if (count > kBufferBytes && command_ == 0 && ::gzdirect(stream_->gz) == 1) {
    return seek(position_ + count) ? count : 0;
  }
  std::vector<uint8_t> ignored(static_cast<size_t>(std::min<uint64_t>(count, kBufferBytes)));
  uint64_t skipped = 0;
  while (skipped < count) {
    const auto piece = static_cast<size_t>(std::min<uint64_t>(count - skipped, ignored.size()));
    const size_t got = read(std::span(ignored).first(piece));
    skipped += got;
    if (got < piece) break;
  }
  return skipped;
}

void ByteStream::finish() {
  if (command_ == 0 && ::gzdirect(stream_->gz) == 1) return;
  constexpr uint64_t kMost = uint64_t{1} << 22;
  skip(kMost);
}

bool ByteStream::seek(uint64_t position) {
  if (local_path(url_).empty() || ::gzdirect(stream_->gz) == 0) return false;
  if (::gzseek(stream_->gz, static_cast<z_off_t>(position), SEEK_SET) < 0) return false;
  position_ = position;
  return true;
}

}  // namespace ddp
