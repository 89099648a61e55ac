#include "launcher/observe/watch/rank_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace launcher {

RankPage::RankPage() {
  using ddp::detail::Page;
  UniqueFd fd(::memfd_create("ddprun-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // The mode is for who opens /proc/<pid>/fd/<n>.
  if (!fd || ::fchmod(fd.get(), 0600) != 0 || ::ftruncate(fd.get(), sizeof(Page)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return;
  }
  void* memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return;
  page_ = static_cast<Page*>(memory);
  page_->greeting.store(ddp::detail::kPageGreeting, std::memory_order_release);
  fd_ = std::move(fd);
}

RankPage::~RankPage() {
  if (page_ != nullptr) ::munmap(page_, sizeof(ddp::detail::Page));
}

}  // namespace launcher
