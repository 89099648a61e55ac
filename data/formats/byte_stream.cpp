#include "data/formats/byte_stream.h"

#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

#include <ddprun/data/byte_source.h>

#include "data/formats/command.h"
#include "data/formats/open_file.h"

namespace ddp {
namespace {

constexpr std::string_view kPipe = "pipe:";
constexpr std::string_view kFile = "file:";
constexpr unsigned kBufferBytes = 1U << 18;

}  // namespace

/// The bytes of a descriptor, decompressed if they begin like gzip data. gzread() of zlib is not used here, because it
/// would lose bytes if a signal interrupted the wait for a command.
struct ByteStream::Stream {
  explicit Stream(int descriptor, const Command* of_command = nullptr)
      : file(descriptor), command(of_command), buffer(kBufferBytes) {}
  ~Stream() {
    if (is_packed) ::inflateEnd(&inflater);
    ::close(file);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Reads at least one byte, except at the end of the data or if `problem` returns a reason.
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
  static constexpr const char* kDamage = "the gzip data is damaged or truncated";
  static constexpr int kGzipWindow = 15 + 16;

  size_t left() const { return end - begin; }

  size_t load(std::span<uint8_t> bytes) {
    while (true) {
      throw_if_stopped();
      if (command != nullptr) command->wait_for_output();
      const ssize_t count = ::read(file, bytes.data(), bytes.size());
      if (count >= 0) return static_cast<size_t>(count);
      if (errno == EINTR) continue;
      problem = std::generic_category().message(errno);
      return 0;
    }
  }

  /// Appends further bytes to those not used yet. Returns false at the end.
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

  /// Whether more data follows. gzip data may have several members. Other bytes after them are ignored, as in gzread().
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
  const Command* command;  // the command whose output is read, or null
  std::vector<uint8_t> buffer;
  size_t begin = 0;
  size_t end = 0;
  bool has_begun = false;
  bool is_packed = false;
  bool is_between = false;  // true after the end of a gzip member
  z_stream inflater{};
};

std::string local_path(const std::string& url) {
  if (url.starts_with(kPipe)) return "";
  return url.starts_with(kFile) ? url.substr(kFile.size()) : url;
}

ByteStream::ByteStream(const std::string& url) : url_(url) {
  if (url.starts_with(kPipe)) {
    command_ = std::make_unique<Command>(url.substr(kPipe.size()), url);
    stream_ = std::make_unique<Stream>(command_->output(), command_.get());
    return;
  }
  const std::string path = local_path(url);
  if (const auto scheme = path.find("://"); scheme != std::string::npos) {
    throw DataError(url,
                    "expected a file or pipe:COMMAND; read it by a command, such as 'pipe:curl -sfL " + path + "'");
  }
  OpenFile file(path);
  stream_ = std::make_unique<Stream>(file.get());
  file.release();
}

ByteStream::~ByteStream() = default;

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
  if (!command_ || has_ended_) return;
  const int status = command_->wait_for_end();
  has_ended_ = true;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  throw DataError(url_, WIFEXITED(status) ? "the command ended with status " + std::to_string(WEXITSTATUS(status))
                                          : "the command was ended by signal " + std::to_string(WTERMSIG(status)));
}

uint64_t ByteStream::skip(uint64_t count) {
  if (count > kBufferBytes && !command_ && stream_->is_plain()) {
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
  if (!command_ && stream_->is_plain()) return;
  constexpr uint64_t kMax = uint64_t{1} << 22;
  skip(kMax);
}

bool ByteStream::seek(uint64_t position) {
  if (command_ || !stream_->seek(position)) return false;
  position_ = position;
  return true;
}

}  // namespace ddp
