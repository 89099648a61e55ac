#include "tests/support/device/host_memory.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <vector>

#include "tests/support/device/devices.h"

namespace ddp::test::device {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kRoom = size_t{4} << 30;  // addresses: only what is used takes memory

struct Copy {
  c10::Stream stream;
  uint64_t time = 0;
  bool is_written = false;
  PointPtr end{};
};

struct Pages {
  char* begin = nullptr;
  size_t bytes = 0;
  uint64_t number = 0;
  std::vector<Copy> copies{};  // those that the host has not waited for
};

int open_file() {
  const int file = memfd_create("page-locked memory", MFD_CLOEXEC);
  TORCH_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(kRoom)) == 0, "simulated device: no page-locked memory");
  return file;
}

char* map(int file) {
  void* place = mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  TORCH_CHECK(place != MAP_FAILED, "simulated device: page-locked memory cannot be mapped");
  return static_cast<char*>(place);
}

class HostMemory final : public at::HostAllocator {
 public:
  HostMemory() {
    const int file = open_file();
    shown_ = map(file);
    real_ = map(file);
    close(file);
  }

  c10::DataPtr allocate(size_t bytes) override {
    Memory::catch_host_accesses();
    devices().ledger.touch_any(current_device().index());
    const size_t rounded = std::max<size_t>((bytes + kPage - 1) / kPage, 1) * kPage;
    const std::lock_guard lock(mutex_);
    const auto free = std::ranges::find_if(free_, [&](const Pages* pages) {
      return pages->bytes == rounded &&
             std::ranges::all_of(pages->copies, [](const Copy& copy) { return devices().engine.is_reached(copy.end); });
    });
    Pages* pages = nullptr;
    if (free != free_.end()) {
      pages = *free;
      free_.erase(free);
      pages->copies.clear();
      protect(*pages);
    } else {
      TORCH_CHECK(used_ + rounded <= kRoom, "simulated device: out of page-locked memory");
      pages = new Pages{.begin = shown_ + used_, .bytes = rounded};
      used_ += rounded;
    }
    pages->number = ++devices().allocations;
    live_[pages->begin] = pages;
    return {pages->begin, pages, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  // The allocator's own note of a use, of which it waits for the end.
  bool record_event(void* address, void* /*context*/, c10::Stream stream) override {
    const std::lock_guard lock(mutex_);
    Pages* pages = find(address);
    if (pages == nullptr) return false;
    add(*pages, stream, /*is_written=*/false);
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
  char* real(const void* shown) const { return real_ + (static_cast<const char*>(shown) - shown_); }

  void begin_copy(const void* address, c10::Stream stream, bool is_written) {
    const std::lock_guard lock(mutex_);
    if (Pages* pages = find(address)) add(*pages, stream, is_written);
  }

  template <typename IsOver>
  void open(IsOver is_over) {
    const std::lock_guard lock(mutex_);
    for (auto it = closed_.begin(); it != closed_.end();) {
      Pages& pages = **it;
      std::erase_if(pages.copies, is_over);
      protect(pages);
      it = pages.copies.empty() ? closed_.erase(it) : std::next(it);
    }
  }

  bool note_early_access(const void* accessed) {
    const auto* address = static_cast<const char*>(accessed);
    if (address < shown_ || address >= shown_ + kRoom) return false;
    const std::lock_guard lock(mutex_);
    Pages* pages = find(address);
    if (pages == nullptr || pages->copies.empty()) return false;
    const bool is_written = std::ranges::any_of(pages->copies, &Copy::is_written);
    devices().ledger.fault(name(*pages) + (is_written ? " was used before the host waited for the copy to it"
                                                      : " was changed before the host waited for the copy from it"));
    pages->copies.clear();
    closed_.remove(pages);
    protect(*pages);
    return true;
  }

  std::vector<std::string> live(uint64_t number) {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> texts;
    for (const auto& [address, pages] : live_) {
      if (pages->number > number) texts.push_back(name(*pages));
    }
    return texts;
  }

 private:
  static void release(void* context) {
    static_cast<HostMemory&>(host_memory()).take_back(static_cast<Pages*>(context));
  }
  static std::string name(const Pages& pages) {
    return "page-locked memory of " + std::to_string(pages.bytes) + " bytes, allocation " +
           std::to_string(pages.number) + ",";
  }

  void take_back(Pages* pages) {
    const std::lock_guard lock(mutex_);
    live_.erase(pages->begin);
    closed_.remove(pages);
    free_.push_front(pages);
  }

  void add(Pages& pages, c10::Stream stream, bool is_written) {
    pages.copies.push_back({.stream = stream,
                            .time = devices().books.time_of(stream),
                            .is_written = is_written,
                            .end = devices().engine.record(key_of(stream))});
    if (std::ranges::find(closed_, &pages) == closed_.end()) closed_.push_back(&pages);
    protect(pages);
  }

  static void protect(const Pages& pages) {
    int access = PROT_READ | PROT_WRITE;
    for (const Copy& copy : pages.copies) access = copy.is_written ? PROT_NONE : access & PROT_READ;
    mprotect(pages.begin, pages.bytes, access);
  }

  Pages* find(const void* address) {
    auto after = live_.upper_bound(static_cast<const char*>(address));
    if (after == live_.begin()) return nullptr;
    Pages* pages = (--after)->second;
    return static_cast<const char*>(address) < pages->begin + pages->bytes ? pages : nullptr;
  }

  std::mutex mutex_;
  char* shown_ = nullptr;
  char* real_ = nullptr;
  size_t used_ = 0;
  std::list<Pages*> free_;
  std::list<Pages*> closed_;
  std::map<const char*, Pages*> live_;
};

HostMemory& memory() {
  return static_cast<HostMemory&>(host_memory());
}

}  // namespace

at::HostAllocator& host_memory() {
  static auto* const the_memory = new HostMemory();
  return *the_memory;
}

bool is_page_locked(const void* address) {
  return memory().has(address);
}

at::Tensor for_copy(const at::Tensor& tensor) {
  const c10::InferenceMode off(false);
  return at::from_blob(memory().real(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(),
                       at::TensorOptions(tensor.scalar_type()));
}

void begin_copy(const at::Tensor& tensor, c10::Stream stream, bool is_written) {
  memory().begin_copy(tensor.const_data_ptr(), stream, is_written);
}

void open_copied() {
  memory().open([](const Copy& copy) { return devices().books.host_knows(copy.stream, copy.time); });
}

void open_all() {
  memory().open([](const Copy&) { return true; });
}

bool note_early_access(const void* address) {
  return memory().note_early_access(address);
}

std::vector<std::string> live_pages(uint64_t number) {
  return memory().live(number);
}

}  // namespace ddp::test::device
