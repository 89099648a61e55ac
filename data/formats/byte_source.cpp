#include "ddprun/data/byte_source.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "data/formats/limits.h"
#include "data/formats/open_file.h"

namespace ddp {
namespace {

constexpr uint64_t kMaxReadBytes = uint64_t{1} << 30;  // gzread() returns the number of bytes as an int

std::string cause() {
  return std::generic_category().message(errno);
}

template <typename Content>
Content read_whole(const std::filesystem::path& path, uint64_t most) {
  const OpenFile file(path);
  const uint64_t size = file.size();
  if (size > most) {
    throw DataError(path, "expected at most " + std::to_string(most) + " bytes, got " + std::to_string(size));
  }
  Content content;
  content.resize(static_cast<size_t>(size));
  // One call of read() returns at most 2 GiB.
  for (size_t at = 0; at < content.size();) {
    const ssize_t count = ::read(file.get(), content.data() + at, content.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      throw DataError(path, "cannot be read: " + (count < 0 ? cause() : std::string("the file shrank while reading")));
    }
    at += static_cast<size_t>(count);
  }
  return content;
}

}  // namespace

struct ByteSource::Stream {
  explicit Stream(int file) : gz(::gzdopen(file, "rb")) {}
  ~Stream() {
    if (gz != nullptr) ::gzclose(gz);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  gzFile gz;
};

ByteSource::ByteSource(std::filesystem::path path) : path_(std::move(path)) {
  OpenFile file(path_);
  size_ = file.size();
  stream_ = std::make_unique<Stream>(file.get());
  if (stream_->gz == nullptr) throw DataError(path_, "cannot be opened: out of memory");
  file.release();
  ::gzbuffer(stream_->gz, 1 << 17);
}

ByteSource::~ByteSource() = default;
ByteSource::ByteSource(ByteSource&& other) noexcept = default;
ByteSource& ByteSource::operator=(ByteSource&& other) noexcept = default;

uint64_t ByteSource::read_some(std::span<uint8_t> bytes) {
  const auto wanted = static_cast<unsigned>(std::min<uint64_t>(bytes.size(), kMaxReadBytes));
  const int count = ::gzread(stream_->gz, bytes.data(), wanted);
  if (count < 0) {
    int code = 0;
    const char* message = ::gzerror(stream_->gz, &code);
    throw DataError(path_, "cannot be read at byte " + std::to_string(position_) + ": " +
                               (code == Z_ERRNO ? cause() : std::string("the gzip data is damaged: ") + message));
  }
  position_ += static_cast<uint64_t>(count);
  return static_cast<uint64_t>(count);
}

void ByteSource::read(std::span<uint8_t> bytes) {
  const uint64_t end = position_ + bytes.size();
  while (!bytes.empty()) {
    const uint64_t count = read_some(bytes);
    if (count == 0) {
      throw DataError(path_, "expected " + std::to_string(end) + " bytes or more, got " + std::to_string(position_) +
                                 ": the file is truncated");
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void ByteSource::skip(uint64_t count) {
  std::array<uint8_t, 4096> ignored{};
  while (count > 0) {
    const uint64_t piece = std::min<uint64_t>(count, ignored.size());
    read(std::span(ignored).first(static_cast<size_t>(piece)));
    count -= piece;
  }
}

bool ByteSource::is_compressed() const {
  return ::gzdirect(stream_->gz) == 0;
}

void ByteSource::require(uint64_t count) const {
  const bool is_plain = !is_compressed();
  constexpr uint64_t kRatio = kMaxInflation;
  const uint64_t most = is_plain ? size_ : std::min(size_, std::numeric_limits<uint64_t>::max() / kRatio) * kRatio;
  if (position_ <= most && count <= most - position_) {
    if (!is_plain && count <= uint64_t{std::numeric_limits<int64_t>::max()}) {
      check_unpacked_size(path_, static_cast<int64_t>(count), static_cast<int64_t>(size_));
    }
    return;
  }
  throw DataError(path_, "expected " + std::to_string(count) + " bytes after byte " + std::to_string(position_) +
                             ", but the file has " + std::to_string(size_) + (is_plain ? "" : " (compressed)") +
                             ": it is truncated or damaged");
}

void ByteSource::require_end() {
  std::array<uint8_t, 1> further{};
  if (read_some(further) != 0) {
    throw DataError(path_, "expected the end of the file after " + std::to_string(position_ - 1) +
                               " bytes, but more follows: it is damaged or of another kind");
  }
}

std::string read_small_file(const std::filesystem::path& path, uint64_t most) {
  return read_whole<std::string>(path, most);
}

std::vector<uint8_t> read_small_file_bytes(const std::filesystem::path& path, uint64_t most) {
  return read_whole<std::vector<uint8_t>>(path, most);
}

DataError::DataError(std::filesystem::path path, const std::string& problem)
    : std::runtime_error(path.string() + ": " + problem), path_(std::move(path)) {}

}  // namespace ddp
