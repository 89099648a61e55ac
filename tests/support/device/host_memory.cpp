#include "tests/support/device/host_memory.h"

#include <ATen/core/CachingHostAllocator.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <map>
#include <mutex>
#include <vector>

#include "tests/support/device/devices.h"

namespace ddp::test::device {
namespace {

constexpr size_t kStep = 512;

struct Page {
  char* begin = nullptr;
  size_t bytes = 0;
  std::vector<PointPtr> copies{};
};

class HostMemory final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    devices().ledger.touch(current_device().index());
    const size_t rounded = std::max<size_t>((bytes + kStep - 1) / kStep, 1) * kStep;
    const std::lock_guard lock(mutex_);
    const auto free = std::ranges::find_if(free_, [&](const Page* page) {
      return page->bytes == rounded &&
             std::ranges::all_of(page->copies, [](const PointPtr& end) { return devices().engine.is_reached(end); });
    });
    Page* page = nullptr;
    if (free != free_.end()) {
      page = *free;
      page->copies.clear();
      free_.erase(free);
    } else {
      page = new Page{.begin = static_cast<char*>(std::aligned_alloc(kStep, rounded)), .bytes = rounded};
    }
    live_[page->begin] = page;
    return {page->begin, page, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  bool record_event(void* address, void* /*context*/, c10::Stream stream) override {
    PointPtr end = devices().engine.record(key_of(stream));
    const std::lock_guard lock(mutex_);
    Page* page = find(address);
    if (page == nullptr) return false;
    page->copies.push_back(std::move(end));
    return true;
  }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  bool has(const void* address) {
    const std::lock_guard lock(mutex_);
    return find(address) != nullptr;
  }

 private:
  static void release(void* context) { static_cast<HostMemory&>(host_memory()).take_back(static_cast<Page*>(context)); }

  void take_back(Page* page) {
    const std::lock_guard lock(mutex_);
    live_.erase(page->begin);
    free_.push_front(page);
  }

  Page* find(const void* address) {
    auto after = live_.upper_bound(static_cast<const char*>(address));
    if (after == live_.begin()) return nullptr;
    Page* page = (--after)->second;
    return static_cast<const char*>(address) < page->begin + page->bytes ? page : nullptr;
  }

  std::mutex mutex_;
  std::list<Page*> free_;
  std::map<const char*, Page*> live_;
};

}  // namespace

at::HostAllocator& host_memory() {
  static auto* const the_memory = new HostMemory();
  return *the_memory;
}

bool is_page_locked(const void* address) {
  return static_cast<HostMemory&>(host_memory()).has(address);
}

}  // namespace ddp::test::device
