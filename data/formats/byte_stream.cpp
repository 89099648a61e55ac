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
#include <limits>
#include <new>
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

/// What a descriptor gives, unpacked where it begins as gzip data does. zlib's gzread() would lose bytes where a signal
/// interrupts the wait for a command.
struct ByteStream::Stream {
  explicit Stream(int descriptor) : file(descriptor), buffer(kBufferBytes) {}
  ~Stream() {
    if (is_packed) ::inflateEnd(&inflater);
    ::close(file);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// At least a byte, except at the end, or where `problem` says why not.
  size_t read(std::span<uint8_t> bytes) {
    if (is_plain()) {
      if (left() == 0 && bytes.size() >= buffer.size()) return load(bytes);
      if (left() == 0 && !fill()) return 0;
      const size_t count = std::min(left(), bytes.size());
      std::copy_n(buffer.data() + begin, count, bytes.data());
      begin += count;
      return count;
    }
    size_t made = 0;
    while (made == 0 && problem.empty() && !bytes.empty() && find_member()) {
      if (left() == 0 && !fill()) {
        if (problem.empty()) problem = kDamage;
        return 0;
      }
      made = unpack(bytes);
    }
    return problem.empty() ? made : 0;
  }

  bool is_plain() {
    if (!has_begun) {
      has_begun = true;
      is_packed = begins_member();
      if (is_packed && ::inflateInit2(&inflater, kGzipWindow) != Z_OK) throw std::bad_alloc();
    }
    return !is_packed;
  }

  bool seek(uint64_t position) {
    if (!is_plain() || ::lseek(file, static_cast<off_t>(position), SEEK_SET) < 0) return false;
    begin = end = 0;
    return true;
  }

  std::string problem{};

 private:
  static constexpr const char* kDamage = "the gzip data is damaged or cut short";
  static constexpr int kGzipWindow = 15 + 16;

  size_t left() const { return end - begin; }

  size_t load(std::span<uint8_t> bytes) {
    while (true) {
      const ssize_t count = ::read(file, bytes.data(), bytes.size());
      if (count >= 0) return static_cast<size_t>(count);
      if (errno == EINTR) continue;
      problem = std::generic_category().message(errno);
      return 0;
    }
  }

  /// Brings further bytes behind those that are left; false at the end.
  bool fill() {
    std::copy(buffer.data() + begin, buffer.data() + end, buffer.data());
    end = left();
    begin = 0;
    const size_t count = load(std::span(buffer).subspan(end));
    end += count;
    return count > 0;
  }

  bool begins_member() {
    while (left() < 2 && fill()) {
    }
    return left() >= 2 && buffer[begin] == 0x1f && buffer[begin + 1] == 0x8b;
  }

  /// Whether there is more: gzip data may be several pieces, and what follows them is not looked at.
  bool find_member() {
    if (is_between) {
      if (!begins_member()) return false;
      ::inflateReset(&inflater);
      is_between = false;
    }
    return true;
  }

  size_t unpack(std::span<uint8_t> bytes) {
    inflater.next_in = buffer.data() + begin;
    inflater.avail_in = static_cast<uInt>(left());
    inflater.next_out = bytes.data();
    inflater.avail_out = static_cast<uInt>(std::min<size_t>(bytes.size(), std::numeric_limits<uInt>::max()));
    const size_t room = inflater.avail_out;
    const int status = ::inflate(&inflater, Z_NO_FLUSH);
    begin = end - inflater.avail_in;
    is_between = status == Z_STREAM_END;
    if (status != Z_OK && status != Z_STREAM_END) problem = kDamage;
    return room - inflater.avail_out;
  }

  int file;
  std::vector<uint8_t> buffer;
  size_t begin = 0;
  size_t end = 0;
  bool has_begun = false;
  bool is_packed = false;
  bool is_between = false;  // behind a piece of gzip data
  z_stream inflater{};
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
    const size_t count = stream_->read(bytes.subspan(done));
    if (!stream_->problem.empty()) {
      throw DataError(url_, "cannot be read after byte " + std::to_string(position_ + done) + ": " + stream_->problem);
    }
    done += count;
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
  if (count > kBufferBytes && command_ == 0 && stream_->is_plain()) {
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
  if (command_ == 0 && stream_->is_plain()) return;
  constexpr uint64_t kMost = uint64_t{1} << 22;
  skip(kMost);
}

bool ByteStream::seek(uint64_t position) {
  if (local_path(url_).empty() || !stream_->seek(position)) return false;
  position_ = position;
  return true;
}

}  // namespace ddp
