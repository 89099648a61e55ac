// A bounded queue of bytes on their way to files: one thread copies tensors in, another takes the bytes out.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/copy_streams.h"

namespace ddp {

class StagingQueue {
 public:
  /// Holds at most `bytes` (at least two blocks of 64 KiB), which are kept for later use.
  explicit StagingQueue(uint64_t bytes);

  // For the thread that copies.

  /// Prepares for new files after the end of earlier ones.
  void open();
  /// The following bytes belong to this file and come after `head`.
  void begin_file(std::string name, std::string head);
  /// The elements of `tensor` in row-major order. Waits while the queue is full. Copies of other devices than the CPU
  /// are queued on a stream beside the device's work when it returns.
  void append(const at::Tensor& tensor);
  /// No more bytes will come. What is queued on the devices' current streams later comes after the copies.
  void close() noexcept;
  /// The same after an error: the files are not complete.
  void abandon() noexcept;

  // For the thread that writes.

  struct Item {
    std::optional<std::string> file{};  ///< a new one begins, with `bytes`
    std::string_view bytes{};           ///< valid until the next call of next()
  };

  /// The next bytes, or nothing at the end. Waits for them. Throws std::runtime_error after abandon().
  std::optional<Item> next();

 private:
  struct Block {
    at::Tensor memory{};
    int64_t used = 0;
    std::vector<c10::Event> copied{};
  };
  struct Entry {
    std::optional<std::string> file{};
    std::string head{};
    std::optional<size_t> block{};
  };

  Block& current(bool is_pinned);
  void copy_piece(const at::Tensor& piece);
  void push_current();
  void push(Entry entry);

  int64_t block_bytes_;
  std::vector<Block> blocks_;
  std::optional<size_t> current_{};  // the block that is being filled
  CopyStreams streams_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> free_{};
  std::deque<Entry> entries_{};
  Entry taken_{};  // what next() returned last
  bool is_closed_ = true;
  bool is_abandoned_ = false;
};

}  // namespace ddp
