#include "checkpoint/staging_queue.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ddp {
namespace {

constexpr int64_t kMinBlockBytes = int64_t{64} << 10;
constexpr int64_t kMaxBlockBytes = int64_t{16} << 20;

}  // namespace

StagingQueue::StagingQueue(uint64_t bytes) {
  const auto bound = static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX));
  // Several blocks, so that one is filled while another is written; elements of up to 16 bytes stay whole.
  block_bytes_ = std::clamp(bound / 8, kMinBlockBytes, kMaxBlockBytes) / kMinBlockBytes * kMinBlockBytes;
  blocks_.resize(static_cast<size_t>(std::max<int64_t>(bound / block_bytes_, 2)));
}

void StagingQueue::open() {
  const std::lock_guard lock(mutex_);
  free_.clear();
  for (size_t i = blocks_.size(); i-- > 0;) free_.push_back(i);
  entries_.clear();
  taken_ = {};
  current_.reset();
  is_closed_ = false;
  is_abandoned_ = false;
}

void StagingQueue::begin_file(std::string name, std::string head) {
  push_current();
  push({.file = std::move(name), .head = std::move(head)});
}

void StagingQueue::append(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  // The file format orders tensors so that each is aligned. In any other order, a new block begins here.
  if (current_ && blocks_[*current_].used % tensor.element_size() != 0) push_current();
  const auto bytes = tensor.numel() * tensor.element_size();
  const auto room = block_bytes_ - (current_ ? blocks_[*current_].used : 0);
  if (bytes <= room) return copy_piece(tensor);
  if (tensor.dim() == 0) {
    push_current();
    return copy_piece(tensor);
  }
  const auto row_bytes = bytes / tensor.size(0);
  if (row_bytes > block_bytes_) {
    for (int64_t row = 0; row < tensor.size(0); ++row) append(tensor.select(0, row));
    return;
  }
  for (int64_t row = 0; row < tensor.size(0);) {
    const auto fitting = (block_bytes_ - (current_ ? blocks_[*current_].used : 0)) / row_bytes;
    if (fitting == 0) {
      push_current();
      continue;
    }
    const auto rows = std::min(fitting, tensor.size(0) - row);
    copy_piece(tensor.narrow(0, row, rows));
    row += rows;
  }
}

// What fits into the current block.
void StagingQueue::copy_piece(const at::Tensor& piece) {
  const at::NoGradGuard no_grad;
  const auto device = piece.device();
  auto& block = current(!device.is_cpu());
  const auto bytes = piece.numel() * piece.element_size();
  const auto target = block.memory.narrow(0, block.used, bytes).view(piece.scalar_type()).view(piece.sizes());
  if (device.is_cpu()) {
    target.copy_(piece);
  } else {
    c10::Event copied(device.type());
    copied.record(streams_.copy(target, piece));
    block.copied.push_back(std::move(copied));
  }
  block.used += bytes;
}

StagingQueue::Block& StagingQueue::current(bool is_pinned) {
  if (!current_) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !free_.empty(); });
    current_ = free_.back();
    free_.pop_back();
  }
  auto& block = blocks_[*current_];
  if (!block.memory.defined() || (is_pinned && block.used == 0 && !block.memory.is_pinned())) {
    block.memory = at::empty({block_bytes_}, at::TensorOptions(at::kByte).pinned_memory(is_pinned));
  }
  return block;
}

void StagingQueue::push_current() {
  if (current_) push({.block = std::exchange(current_, std::nullopt)});
}

void StagingQueue::push(Entry entry) {
  {
    const std::lock_guard lock(mutex_);
    entries_.push_back(std::move(entry));
  }
  changed_.notify_all();
}

void StagingQueue::close() noexcept {
  push_current();
  static_cast<void>(streams_.end_copies());
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  changed_.notify_all();
}

void StagingQueue::abandon() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_abandoned_ = true;
  }
  close();
}

std::optional<StagingQueue::Item> StagingQueue::next() {
  std::unique_lock lock(mutex_);
  if (taken_.block) {
    auto& block = blocks_[*taken_.block];
    block.used = 0;
    block.copied.clear();
    free_.push_back(*taken_.block);
  }
  taken_ = {};
  changed_.notify_all();
  changed_.wait(lock, [&] { return is_abandoned_ || is_closed_ || !entries_.empty(); });
  if (is_abandoned_) throw std::runtime_error("the state could not be copied");
  if (entries_.empty()) return std::nullopt;
  taken_ = std::move(entries_.front());
  entries_.pop_front();
  lock.unlock();
  if (!taken_.block) return Item{.file = taken_.file, .bytes = taken_.head};
  auto& block = blocks_[*taken_.block];
  for (auto& copied : block.copied) copied.synchronize();
  return Item{.bytes = {static_cast<const char*>(block.memory.const_data_ptr()), static_cast<size_t>(block.used)}};
}

}  // namespace ddp
