// The bytes of a shard, in order: from a local file or from the output of a command, plain or gzip-compressed. Uses
// POSIX, but not LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace ddp {

class Command;

/// Reads `path`, `file:path`, or the output of `pipe:command`, which /bin/sh runs. The destructor terminates the
/// command.
class ByteStream {
 public:
  /// Throws DataError if the file cannot be opened, the command cannot be started, or the address is of another kind.
  explicit ByteStream(const std::string& url);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  /// Reads up to bytes.size() bytes; fewer only at the end. Throws DataError if gzip data is damaged, or at the end of
  /// a command that failed. While it waits for a command, it throws ReadStopped if the loader has ended the pass.
  size_t read(std::span<uint8_t> bytes);
  /// Skips up to `count` bytes, and returns the number of bytes skipped. In a plain file it may skip beyond the end of
  /// the file without noticing it.
  uint64_t skip(uint64_t count);
  /// Reads the remaining output of a command and the remaining compressed data, in order to check their ends. It reads
  /// only a few MiB: a command that continues to write is terminated. Throws DataError like read().
  void finish();
  /// The number of bytes read or skipped so far, after decompression.
  uint64_t position() const { return position_; }
  /// Moves to a position in a plain file. Returns false if it is not a plain file.
  bool seek(uint64_t position);
  const std::string& url() const { return url_; }

 private:
  struct Stream;

  void end_of_command();

  std::string url_;
  std::unique_ptr<Command> command_;
  std::unique_ptr<Stream> stream_;
  bool has_ended_ = false;  // whether the command has ended and its status is known
  uint64_t position_ = 0;
};

/// Returns the path of the local file that an address refers to; empty for a command.
std::string local_path(const std::string& url);

}  // namespace ddp
