// The bytes of a shard, one after the other: of a local file or of a command's output, plain or gzip-compressed. POSIX,
// no LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace ddp {

class Command;

/// Reads `path`, `file:path`, or what `pipe:command` writes, by /bin/sh. Ends the command when it goes.
class ByteStream {
 public:
  /// Throws DataError when the file cannot be opened or the command not be started, and for other addresses.
  explicit ByteStream(const std::string& url);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  /// Up to bytes.size() bytes; fewer only at the end. Throws DataError for damaged gzip data, and at the end of a
  /// command that failed. What waits for a command throws ReadStopped when the loader has ended the pass.
  size_t read(std::span<uint8_t> bytes);
  /// Passes over up to `count` bytes, and returns how many there may have been: far ahead in a plain file it does not
  /// look.
  uint64_t skip(uint64_t count);
  /// Reads what is left of a command's output and of compressed data, so that their ends are checked, but not more than
  /// a few MiB: what writes on is ended. Throws DataError as read().
  void finish();
  /// Bytes read and passed over so far, when unpacked.
  uint64_t position() const { return position_; }
  /// Seeks to a position of a plain file. False where it is not a plain file.
  bool seek(uint64_t position);
  const std::string& url() const { return url_; }

 private:
  struct Stream;

  void end_of_command();

  std::string url_;
  std::unique_ptr<Command> command_;
  std::unique_ptr<Stream> stream_;  // after command_, whose output it reads: its end is the first to be closed
  bool has_ended_ = false;          // the command, and its status is known
  uint64_t position_ = 0;
};

/// The local file of an address, empty for a command.
std::string local_path(const std::string& url);

}  // namespace ddp
