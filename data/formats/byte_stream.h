// The bytes of a shard in order: from a local file or the output of a command, plain or gzip-compressed. POSIX, no
// LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace ddp {

class Command;

/// Reads `path`, `file:path`, or the output of `pipe:command`, which /bin/sh runs. The destructor ends the command.
class ByteStream {
 public:
  /// Throws DataError when the file cannot be opened or the command cannot be started, and for other addresses.
  explicit ByteStream(const std::string& url);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  /// Reads up to bytes.size() bytes; fewer only at the end. Throws DataError for damaged gzip data, and at the end of a
  /// command that failed. While it waits for a command, it throws ReadStopped when the loader has ended the pass.
  size_t read(std::span<uint8_t> bytes);
  /// Skips up to `count` bytes, and returns how many were skipped. In a plain file it does not check whether bytes far
  /// ahead exist.
  uint64_t skip(uint64_t count);
  /// Reads the rest of a command's output and of compressed data, so that their ends are checked, but only a few MiB: a
  /// command that continues to write is ended. Throws DataError as read().
  void finish();
  /// The number of bytes that were read or skipped, after decompression.
  uint64_t position() const { return position_; }
  /// Moves to a position of a plain file. Returns false if it is not a plain file.
  bool seek(uint64_t position);
  const std::string& url() const { return url_; }

 private:
  struct Stream;

  void end_of_command();

  std::string url_;
  std::unique_ptr<Command> command_;
  std::unique_ptr<Stream> stream_;  // the command has ended, and its status is known
  bool has_ended_ = false;          // the command, and its status is known
  uint64_t position_ = 0;
};

/// The local file of an address; empty for a command.
std::string local_path(const std::string& url);

}  // namespace ddp
