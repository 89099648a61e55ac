#include "tests/support/device/allocator.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

#include "tests/support/device/devices.h"

namespace ddp::test::device {
namespace {

constexpr size_t kStep = 512;

size_t rounded(size_t bytes) {
  return std::max<size_t>((bytes + kStep - 1) / kStep, 1) * kStep;
}

}  // namespace

DeviceAllocator::DeviceAllocator(int devices) : used_(static_cast<size_t>(devices)) {}

c10::DataPtr DeviceAllocator::allocate(size_t bytes) {
  Memory::catch_host_accesses();
  const c10::Device device = current_device();
  const c10::Stream stream = current_stream(device.index());
  devices().ledger.count([](Counts& counts) { ++counts.allocations; });
  devices().ledger.touch(device.index());
  auto* block = new Block{.bytes = bytes, .stream = key_of(stream)};
  {
    const std::lock_guard lock(mutex_);
    collect();
    const Room room = find(block->stream, rounded(bytes));
    block->shown = room.shown;
    block->room = room.bytes;
    block->number = ++devices().allocations;
    live_[block->shown] = block;
  }
  devices().books.allocated(block, stream);
  return {block->shown, block, &release, device};
}

DeviceAllocator::Room DeviceAllocator::find(StreamKey stream, size_t bytes) {
  auto& rooms = free_[stream];
  if (const auto found = rooms.lower_bound(bytes); found != rooms.end() && found->first <= 2 * bytes) {
    const Room room{.shown = found->second, .bytes = found->first};
    rooms.erase(found);
    return room;
  }
  size_t& used = used_.at(static_cast<size_t>(stream.device));
  TORCH_CHECK(used + bytes <= devices().memory.bytes_each(), "simulated device ", stream.device, " is out of memory");
  const Room room{.shown = devices().memory.shown(stream.device) + used, .bytes = bytes};
  used += bytes;
  return room;
}

// What was freed last is the first to be given out again.
void DeviceAllocator::give(StreamKey stream, Room room) {
  auto& rooms = free_[stream];
  rooms.emplace_hint(rooms.lower_bound(room.bytes), room.bytes, room.shown);
}

void DeviceAllocator::collect() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const bool is_over =
        std::ranges::all_of(it->ends, [](const PointPtr& end) { return devices().engine.is_reached(end); });
    if (!is_over) {
      ++it;
      continue;
    }
    give(it->stream, it->room);
    it = waiting_.erase(it);
  }
}

void DeviceAllocator::release(void* block) {
  devices().allocator.take_back(static_cast<Block*>(block));
}

void DeviceAllocator::take_back(Block* block) {
  devices().books.freed(block);
  std::vector<PointPtr> ends;
  for (const auto& [stream, uses] : block->other_users) {
    if (stream != block->stream) ends.push_back(devices().engine.record(stream));
  }
  const Room room{.shown = block->shown, .bytes = block->room};
  const std::lock_guard lock(mutex_);
  live_.erase(block->shown);
  if (ends.empty()) {
    give(block->stream, room);
  } else {
    waiting_.push_back({.room = room, .stream = block->stream, .ends = std::move(ends)});
  }
  delete block;
}

void DeviceAllocator::copy_data(void* to, const void* from, std::size_t bytes) const {
  std::memcpy(devices().memory.real(to), devices().memory.real(from), bytes);
}

Block* DeviceAllocator::block_of(const c10::DataPtr& data) {
  return data.get_deleter() == &release ? static_cast<Block*>(data.get_context()) : nullptr;
}

Block* DeviceAllocator::block_at(const void* shown) const {
  const std::lock_guard lock(mutex_);
  const char* address = static_cast<const char*>(shown);
  auto after = live_.upper_bound(address);
  if (after == live_.begin()) return nullptr;
  Block* block = (--after)->second;
  return address < block->shown + block->room ? block : nullptr;
}

void DeviceAllocator::used_on(Block& block, c10::Stream stream) {
  devices().books.keep_for(&block, stream);
  const std::lock_guard lock(mutex_);
  block.other_users[key_of(stream)] = true;
}

std::vector<std::string> DeviceAllocator::live(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> texts;
  for (const auto& [address, block] : live_) {
    if (block->number > number) texts.push_back(block->name());
  }
  return texts;
}

std::string DeviceAllocator::describe(const void* shown) const {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return "an allocation of device " + std::to_string(devices().memory.device_of(shown));
  const char* address = static_cast<const char*>(shown);
  auto after = live_.upper_bound(address);
  if (after == live_.begin() || address >= (--after)->second->shown + after->second->room) {
    return "nothing that is allocated on device " + std::to_string(devices().memory.device_of(shown));
  }
  return "byte " + std::to_string(address - after->second->shown) + " of " + after->second->name();
}

}  // namespace ddp::test::device
